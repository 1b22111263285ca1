"""Our end of a zygote (`compiler.children.zygote`): a process that imported the compiler; children are forked of it.

Loading TVM takes longer than most steps take to run, and is the same for each of them. A zygote does it once. It never
sees an upload, nor orders: those are on the stdin of the child, which sandboxes itself as one that was started anew
does, in the same order, before it looks at them. What it hands its children is memory that only our own code and its
libraries have written.

A child must be ours to wait for, not the zygote's: the zygote forks twice, and the kernel gives the orphan to the
nearest ancestor that collects orphans (PR_SET_CHILD_SUBREAPER), which is us while we wait for its answer.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from service.compiler.sandbox.kernel import prctl
from service.core.errors import BuildFailed

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
READY = b"ready"
_TICK_MS = 100

# What every child's environment is made of, forked or started: nothing is inherited from us.
ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # sets iterate in the same order in every build, so equal inputs give equal bytes
    # Libraries that start a pool at import would do so before the sandbox closes.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",  # each arena reserves 64 MB of the address space limit
}
# The roles that load the compiler, and where they are.
FORKED = frozenset({"import", "inspect", "passes", "build", "kernel", "oracle"})
_MODULES = ("service.compiler.children.roles",)


class ChildDescriptors(NamedTuple):
    """The child's ends of the pipes between it and its parent, as descriptors of this process."""

    stdin: int
    log: int
    messages: int
    parent_death: int


class ZygoteGone(Exception):
    """It has ended, whatever the reason was; another may be started."""


class Zygote:
    """Our end of one.

    Args:
        modules: what it imports.
        environment: its own, and that of its children, which add to it.
    """

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-s",
                    "-P",
                    "-B",
                    "-m",
                    "service.compiler.children.zygote",
                    str(theirs.fileno()),
                    *modules,
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                cwd="/",
                env=dict(environment),
                process_group=0,  # and no session: see core.scheduling
                umask=0o077,
            )
        self._ready = False

    def wait(self, poll: Callable[[], None]) -> None:
        """Calls `poll`, which may raise, every 100 ms until it has imported, or is gone, which `fork` finds out."""
        events, descriptor = select.poll(), self._socket.fileno()
        if descriptor < 0:  # another thread has closed it
            return
        events.register(descriptor, select.POLLIN)
        while not self._ready and not events.poll(_TICK_MS):
            poll()

    def fork(self, role: str, ends: ChildDescriptors, directory: Path, env: Mapping[str, str]) -> int:
        """The process id of a new child of ours in `directory`, which does `role`.

        Raises:
            ZygoteGone: it could not.
        """
        request = json.dumps({"role": role, "env": dict(env), "directory": str(directory)}).encode()
        with self._lock:
            try:
                if not self._ready and self._socket.recv(len(READY)) != READY:
                    raise ZygoteGone
                self._ready = True
                with _collecting_orphans():
                    socket.send_fds(self._socket, [request], ends)
                    return int(self._socket.recv(32))
            except (OSError, ValueError) as error:
                raise ZygoteGone from error

    def close(self) -> None:
        """Ends it; its children live on."""
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def _collecting_orphans() -> Iterator[None]:
    """Makes this process the parent of processes that are orphaned below it.

    It does so only while a fork takes place: nothing would wait for any other orphan.
    """
    before = ctypes.c_int()
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.addressof(before))
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, before.value)


class ZygoteSupervisor:
    """One zygote for this process, started when it is first needed and again when it is gone."""

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        self._modules, self._environment = modules, environment
        self._lock = threading.Lock()
        self._zygote: Zygote | None = None
        self._owner = 0

    def warm(self) -> Zygote:
        """The zygote; it may still be importing."""
        with self._lock:
            if self._zygote is None or self._owner != os.getpid():  # a fork of us may not share our end
                if self._owner != os.getpid():
                    atexit.register(self.close)
                self._zygote, self._owner = Zygote(self._modules, self._environment), os.getpid()
            return self._zygote

    def fork(self, role: str, ends: ChildDescriptors, directory: Path, env: Mapping[str, str]) -> int:
        """As `Zygote.fork`; one that is gone is replaced.

        Raises:
            BuildFailed: so is the next.
        """
        for _ in range(2):
            zygote = self.warm()
            try:
                return zygote.fork(role, ends, directory, env)
            except ZygoteGone:
                self._drop(zygote)
        raise BuildFailed(f"the {role} process could not be started", hint="see the log of the compile worker")

    def close(self) -> None:
        if self._zygote is not None and self._owner == os.getpid():
            self._drop(self._zygote)

    def _drop(self, zygote: Zygote) -> None:
        with self._lock:
            if self._zygote is zygote:
                self._zygote = None
        zygote.close()


ZYGOTES = ZygoteSupervisor(_MODULES, ENVIRONMENT)


def warm() -> None:
    """Starts the zygote, so that it has imported the compiler when the first child is wanted."""
    ZYGOTES.warm()


def shut_down() -> None:
    """Ends the zygote, which takes 0.2 GB, where nothing is built; the next child waits a second for another."""
    ZYGOTES.close()
