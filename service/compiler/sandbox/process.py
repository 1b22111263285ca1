"""Starts a child, receives its messages, and ends all of its processes within the time limits, whatever they do."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from service.compiler.sandbox import gpus
from service.compiler.sandbox.check import require
from service.compiler.sandbox.messages import Conversation
from service.compiler.sandbox.policy import Access, Limits
from service.compiler.sandbox.report import EXECUTE
from service.compiler.sandbox.stall import Stall
from service.compiler.sandbox.termination import Termination, oom_kills
from service.compiler.sandbox.watch import REPORT_IT, Watch
from service.compiler.sandbox.zygotes import ENVIRONMENT, FORKED, ZYGOTES, ChildDescriptors
from service.core.builds import dialects
from service.core.errors import BuildFailed, BuildTimedOut, CorruptBlob

# A function that forks this process. Its arguments are the role, the child's pipe ends, working directory and
# environment; it returns the child's process id.
Fork = Callable[[str, ChildDescriptors, Path, Mapping[str, str]], int]

_TICK_S = 0.1
_EXIT_GRACE_S = 10.0  # time between the last message and the exit; freeing gigabytes takes a second
_REAP_S = 10.0
_ALONE_S = 5.0  # if the parent hangs, a child kills itself this long after its time limit
_READ_BYTES = 1 << 16
_LOG_TAIL_BYTES = 16 << 10
_LOG_TOTAL_BYTES = 64 << 20


class Child:
    """One child process, from its start until it is reaped. It is a context manager; leaving it kills the child."""

    def __init__(
        self,
        role: str,
        setup: Mapping[str, Any],
        access: Access,
        limits: Limits,
        env: Mapping[str, str],
        allow_unsandboxed: bool,
        unsandboxed: bool = False,
        fork: Fork | None = None,
    ) -> None:
        require(allow_unsandboxed=allow_unsandboxed or unsandboxed)
        # A child that a command forks may report damaged files of the command's user. A server checks its store itself,
        # so its children may not report damage.
        self.conversation = Conversation(() if fork is None else (CorruptBlob,))
        self._role, self._limits = role, limits
        self._tail = bytearray()
        self._log_bytes = 0
        self._watch = Watch(access, limits)
        self._oom_kills_before = oom_kills()
        self._deadline = time.monotonic() + limits.wall_s
        scratch = access.scratch
        env = {**env, **(gpus.environment() if limits.cards else {})}
        home = {} if scratch is None else {"HOME": str(scratch.absolute()), "TMPDIR": str(scratch.absolute())}
        environment = {**ENVIRONMENT, **home, **dialects.environment()}
        self._process: subprocess.Popen[bytes] | None = None
        self._returncode: int | None = None
        self._cpu_s = 0.0
        self._messages, messages_end = os.pipe()
        self._log, log_end = os.pipe()
        parent_death_end, self._parent_death_pipe = os.pipe()
        whole = {
            **setup,
            "access": access.to_json(),
            "limits": asdict(limits),
            "parent": os.getpid(),
            "alone_s": limits.wall_s + _ALONE_S,
            "allow_unsandboxed": allow_unsandboxed,
            "unsandboxed": unsandboxed,
        }
        try:
            with _memory_file(json.dumps(whole).encode()) as stdin:
                ends = ChildDescriptors(stdin, log_end, messages_end, parent_death_end)
                if fork is not None:
                    self._pid = fork(role, ends, scratch or Path("/"), {**environment, **env})
                elif role in FORKED:
                    self._pid = ZYGOTES.fork(role, ends, scratch or Path("/"), {**home, **env})
                else:
                    numbers = [str(messages_end), str(parent_death_end)]
                    self._process = subprocess.Popen(
                        # Like -I (isolated), except that the PYTHON* variables in the environment that is set here are
                        # used.
                        [sys.executable, "-s", "-P", "-B", "-m", "service.compiler.children.child", role, *numbers],
                        stdin=stdin,
                        stdout=log_end,
                        stderr=log_end,
                        pass_fds=[messages_end, parent_death_end],
                        cwd=scratch or "/",
                        env={**environment, **env},
                        process_group=0,  # a new session is not needed: see core.system.scheduling
                        umask=0o077,
                    )
                    self._pid = self._process.pid
        except BaseException:  # the child may be running already; closing the parent-death pipe ends it
            self._close()
            raise
        finally:
            for descriptor in (messages_end, log_end, parent_death_end):
                os.close(descriptor)

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reap()
        self._close()

    def run(self, on_message: Callable[[dict[str, Any]], None], poll: Callable[[], None]) -> Termination:
        """Receives messages until the child has ended. If `on_message` or `poll` raises an exception, ends the child
        early.

        Raises:
            BuildTimedOut: the child reached a time limit.
            BuildFailed: the child reached another limit, or violated the protocol.
        """
        hear: dict[int, Callable[[bytes], None]] = {
            self._messages: lambda data: _forward(self.conversation.feed(data), on_message),
            self._log: self._keep,
        }
        next_tick = time.monotonic()
        last_word_at: float | None = None
        with selectors.DefaultSelector() as selector:
            for descriptor in hear:
                os.set_blocking(descriptor, False)
                selector.register(descriptor, selectors.EVENT_READ)
            stall = Stall(self._pid, self._limits.stall_s)
            while not self._has_ended():
                # If the map is empty, both pipes are closed, so the child will end soon. Nothing reports the end, so it
                # is polled often.
                for key, _ in selector.select(_TICK_S) if selector.get_map() else _nap():
                    data = os.read(key.fd, _READ_BYTES)
                    if data:
                        hear[key.fd](data)
                        continue
                    selector.unregister(key.fd)
                    if key.fd == self._messages and self._role != EXECUTE:
                        last_word_at = last_word_at or time.monotonic()
                now = time.monotonic()
                if self.conversation.is_over:
                    last_word_at = last_word_at or now
                self._check_time(now, last_word_at)
                if now >= next_tick:
                    next_tick = now + _TICK_S
                    poll()
                    self._watch.check(self._pid)
                    if stall.has_lasted(now):
                        raise BuildTimedOut(
                            f"the {self._role} process has done nothing for {self._limits.stall_s:g} s",
                            hint="it may have been stopped, or be waiting for a disk: build again, or raise "
                            "OCTET_BUILD_STALL_LIMIT_S",
                        )
        self._watch.check_files(self._pid)
        # No process can write to the pipes any more. The pipes contain only the last output.
        self._signal_group()
        for descriptor, take in hear.items():
            with contextlib.suppress(BlockingIOError):
                while data := os.read(descriptor, _READ_BYTES):
                    take(data)
        termination = self._reap()
        if termination.status in (-signal.SIGKILL, -signal.SIGALRM):  # the child's own timer may have killed it
            self._check_time(time.monotonic(), None)
        return termination

    @property
    def cpu_s(self) -> float:
        """The processor time that the child used. This time is known only after the child has ended."""
        return self._cpu_s

    def _close(self) -> None:
        for descriptor in (self._messages, self._log, self._parent_death_pipe):
            os.close(descriptor)

    def _check_time(self, now: float, last_word_at: float | None) -> None:
        if now >= self._deadline:
            raise BuildTimedOut(
                f"the {self._role} process took longer than {self._limits.wall_s:g} s of wall-clock time",
                hint="raise OCTET_BUILD_TIME_LIMIT_S, or build a smaller model",
            )
        if last_word_at is not None and now - last_word_at > _EXIT_GRACE_S:
            raise BuildFailed(f"the {self._role} process did not exit after its last message", hint=REPORT_IT)

    def _keep(self, data: bytes) -> None:
        self._log_bytes += len(data)
        if self._log_bytes > _LOG_TOTAL_BYTES:
            raise BuildFailed(
                f"the {self._role} process wrote more than {_LOG_TOTAL_BYTES} bytes to its log", hint=REPORT_IT
            )
        self._tail += data
        del self._tail[:-_LOG_TAIL_BYTES]

    def _has_ended(self) -> bool:
        # WNOWAIT does not reap the child, so its process group id cannot be reused in the meantime.
        return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _signal_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)

    def _reap(self) -> Termination:
        """Kills the rest of the process group and reaps the child. Further calls return the same result."""
        if self._returncode is None:
            self._signal_group()
            give_up_at = time.monotonic() + _REAP_S
            pid, status, usage = os.wait4(self._pid, os.WNOHANG)
            # A process that waits for a failed disk cannot be killed until the wait ends.
            while pid == 0 and time.monotonic() < give_up_at:
                time.sleep(0.001)
                pid, status, usage = os.wait4(self._pid, os.WNOHANG)
            if pid != 0:
                self._returncode = os.waitstatus_to_exitcode(status)
                if self._process is not None:
                    self._process.returncode = self._returncode
                self._cpu_s = usage.ru_utime + usage.ru_stime
        code = self._returncode
        log = self._tail.decode(errors="replace")
        killed = oom_kills() - self._oom_kills_before
        if code is None:
            return Termination(-signal.SIGKILL, 0.0, log, killed)
        return Termination(code, self._cpu_s, log, killed)


def _forward(news: Iterator[dict[str, Any]], on_message: Callable[[dict[str, Any]], None]) -> None:
    for message in news:
        on_message(message)


def _nap() -> tuple[()]:
    time.sleep(0.002)
    return ()


@contextlib.contextmanager
def _memory_file(data: bytes) -> Iterator[int]:
    """Yields a descriptor from which `data` can be read. Unlike with a pipe, no reader is needed while the data is
    written.
    """
    descriptor = os.memfd_create("request", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)
