"""Starts zygotes and sends them requests. A zygote (`compiler.children.zygote`) is a process that has imported the
compiler and forks children.

Loading TVM takes longer than most steps, so the zygote loads TVM once for all steps. The zygote never receives an
upload or orders. The child reads its orders from stdin and sandboxes itself exactly like a child that is a new process.
The memory that it inherits was written only by Octet's own code and its libraries.

The parent of the child must be this process, not the zygote. The zygote therefore forks twice, and the intermediate
process ends. The kernel then gives the orphaned child to the nearest ancestor that collects orphans
(PR_SET_CHILD_SUBREAPER). During a fork, that is this process.
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
from service.core.builds import dialects
from service.core.digest import Digest
from service.core.errors import BuildFailed

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
READY = b"ready"
_TICK_MS = 100

# The environment of every child, whether it is forked or started. A child does not inherit variables from this process.
ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # sets iterate in the same order in every build, so that equal inputs give equal bytes
    # Some libraries start a thread pool when they are imported, which is before the sandbox is closed.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",  # each arena takes 64 MB of the address space limit
}
# The roles that load the compiler, and the modules that contain them.
FORKED = frozenset({"import", "inspect", "passes", "build", "kernel", "oracle"})
_MODULES = ("service.compiler.children.roles",)


class ChildDescriptors(NamedTuple):
    """The child's ends of the pipes to its parent, as descriptors of this process."""

    stdin: int
    log: int
    messages: int
    parent_death: int


class ZygoteGone(Exception):
    """The zygote has ended for some reason. Another zygote may be started."""


class Zygote:
    """One zygote process, as its parent controls it.

    Args:
        modules: the modules that the zygote imports.
        environment: the zygote's environment variables. Its children have these and additional ones.
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
                process_group=0,  # a new session is not needed: see core.system.scheduling
                umask=0o077,
            )
        self._ready = False

    def wait(self, poll: Callable[[], None]) -> None:
        """Calls `poll`, which may raise, every 100 ms until the zygote has imported its modules or has ended."""
        events, descriptor = select.poll(), self._socket.fileno()
        if descriptor < 0:  # another thread has closed it
            return
        events.register(descriptor, select.POLLIN)
        while not self._ready and not events.poll(_TICK_MS):
            poll()

    def fork(self, role: str, ends: ChildDescriptors, directory: Path, env: Mapping[str, str]) -> int:
        """Forks a child of this process that runs `role` in `directory`, and returns its process id.

        Raises:
            ZygoteGone: the zygote has ended.
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
        """Ends the zygote. Its children continue to run."""
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def _collecting_orphans() -> Iterator[None]:
    """Makes this process the parent of orphaned descendants. This is used only while the zygote forks: this process
    would never reap other orphans.
    """
    before = ctypes.c_int()
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.addressof(before))
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, before.value)


class ZygoteSupervisor:
    """The zygote of this process. The zygote is started when it is first needed, and again after it has ended or a
    dialect has changed.
    """

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        self._modules, self._environment = modules, environment
        self._lock = threading.Lock()
        self._zygote: Zygote | None = None
        self._dialects: dict[str, Digest] = {}  # the dialects that the zygote has loaded
        self._owner = 0

    def warm(self) -> Zygote:
        """Returns the zygote, which may still be importing."""
        with self._lock:
            configured = dialects.digests()
            if self._zygote is not None and self._owner == os.getpid() and configured != self._dialects:
                self._zygote.close()
                self._zygote = None
            # after a fork of this process, the fork must not use the zygote of its parent
            if self._zygote is None or self._owner != os.getpid():
                if self._owner != os.getpid():
                    atexit.register(self.close)
                environment = {**self._environment, **dialects.environment()}
                self._zygote, self._owner = Zygote(self._modules, environment), os.getpid()
                self._dialects = configured
            return self._zygote

    def fork(self, role: str, ends: ChildDescriptors, directory: Path, env: Mapping[str, str]) -> int:
        """Forks a child like `Zygote.fork`. If the zygote has ended, starts another one and tries again.

        Raises:
            BuildFailed: the second zygote has ended as well.
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
    """Starts the zygote early, so that it has imported the compiler before the first child is needed."""
    ZYGOTES.warm()


def shut_down() -> None:
    """Ends the zygote, which frees 0.2 GB while nothing is built. The next child waits about a second for a new
    zygote.
    """
    ZYGOTES.close()
