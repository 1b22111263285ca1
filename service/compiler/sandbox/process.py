"""Starts a child, listens to it, and ends it: on time, completely, whatever it does."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from service.compiler.sandbox.check import require
from service.compiler.sandbox.messages import Conversation, clean
from service.compiler.sandbox.policy import Access, Limits
from service.compiler.sandbox.watch import Watch, too_much_written
from service.core.errors import BuildCrashed, BuildFailed, BuildTimedOut, OctetError, OutOfMemory

_TICK_S = 0.1
_EXIT_GRACE_S = 10.0  # between the last word and the exit; freeing gigabytes takes a second
_REAP_S = 10.0
_READ_BYTES = 1 << 16
_LOG_TAIL_BYTES = 16 << 10
_LOG_TOTAL_BYTES = 64 << 20
_OUT_OF_MEMORY = re.compile(r"bad_alloc|out of memory|Cannot allocate memory|MemoryError|bad_array_new_length", re.I)

EXECUTE = "execute"

_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # sets iterate in the same order in every build, so equal inputs give equal bytes
    # Libraries that start a pool at import would do so before the sandbox closes.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",  # each arena reserves 64 MB of the address space limit
}


def run_child(
    role: str,
    request: Mapping[str, Any],
    *,
    access: Access,
    limits: Limits,
    on_message: Callable[[dict[str, Any]], None] = lambda message: None,
    poll: Callable[[], None] = lambda: None,
    env: Mapping[str, str] | None = None,
    allow_unsandboxed: bool = False,
    handlers: Path | None = None,
) -> dict[str, Any]:
    """Runs `role` (of `service.compiler.child.ROLES`) in a locked-in process of its own and returns its result.

    Args:
        role: what the child is to do.
        request: handed to the role as it is; JSON.
        access: files that it may touch, besides installed code.
        limits: what it may use up.
        on_message: gets the child's at, stage and log messages, checked; may raise, which ends the child.
        poll: called about every 100 ms; may raise (`BuildCanceled`), which ends the child.
        env: environment variables, on top of a minimal set; nothing is inherited.
        allow_unsandboxed: go on where the kernel lacks Landlock or seccomp.
        handlers: a Python file whose functions are the roles. For tests; nothing else passes it.

    Raises:
        OctetError: the child's own error (about the input, or `BuildFailed`).
        BuildCrashed: it died of a signal, or ended without a result.
        BuildTimedOut: it ran out of time, on the clock or of the processor.
        OutOfMemory: it ran out of memory.
        BuildFailed: it used too much of something else, or did not keep to the protocol.
        SandboxUnavailable: the kernel lacks something, and `allow_unsandboxed` is False.
    """
    setup = {"request": request, "handlers": None if handlers is None else str(handlers)}
    with _Child(role, setup, access, limits, env or {}, allow_unsandboxed) as child:
        ending = child.run(on_message, poll)
    conversation = child.conversation
    if ending.status == 0 and conversation.error is not None:
        raise conversation.error
    if ending.status == 0 and conversation.result is not None:
        return conversation.result
    raise conversation.place(ending.explain(f"the {role} process", limits))


def run_program(
    arguments: Sequence[str],
    *,
    access: Access,
    limits: Limits,
    poll: Callable[[], None] = lambda: None,
    env: Mapping[str, str] | None = None,
    allow_unsandboxed: bool = False,
) -> tuple[int, str]:
    """Runs a program in the sandbox; `arguments[0]` is its path and must be in `access.executable`.

    Returns:
        Its exit status and the end of what it wrote to stdout and stderr.

    Raises:
        BuildCrashed: it died of a signal or could not be started.
        BuildTimedOut, OutOfMemory, BuildFailed, SandboxUnavailable: as `run_child`.
    """
    setup = {"request": {"arguments": list(arguments)}, "handlers": None}
    with _Child(EXECUTE, setup, access, limits, env or {}, allow_unsandboxed) as child:
        ending = child.run(lambda message: None, poll)
    if child.conversation.error is not None:
        raise child.conversation.error
    if ending.status < 0 or not child.conversation.locked:
        raise ending.explain(Path(arguments[0]).name, limits)
    return ending.status, ending.log


@dataclass(frozen=True)
class _Ending:
    """How a child ended.

    Attributes:
        status: exit status, or minus the signal's number.
        cpu_s: processor time it took.
        log: end of its stdout and stderr.
    """

    status: int
    cpu_s: float
    log: str

    def explain(self, who: str, limits: Limits) -> OctetError:
        """Why there is no result."""
        number = -self.status if self.status < 0 else None
        if number == signal.SIGXCPU or (number == signal.SIGKILL and self.cpu_s >= limits.cpu_s):
            return BuildTimedOut(
                f"{who} used up its {limits.cpu_s:g} s of processor time",
                hint="raise OCTET_BUILD_TIME_LIMIT_S, or build a smaller model",
            )
        if number == signal.SIGXFSZ:
            return too_much_written(limits)
        if self.status != 0 and is_out_of_memory(self.log):
            return out_of_memory(who, limits)
        how = "ended without a result"
        if number is not None:
            how = f"died of {_signal_name(number)}"
        elif self.status > 0:
            how = f"exited with status {self.status}"
        last = next((line for line in reversed(self.log.splitlines()) if line.strip()), "")
        return BuildCrashed(
            f"{who} {how}" + (f": {clean(last, 200)}" if last else ""),
            hint="the kernel kills with SIGKILL when the machine is out of memory"
            if number == signal.SIGKILL
            else "this is a defect of the compiler or a malicious file; please report the model",
        )


class _Child:
    """One child process, from start to burial. Use as a context manager: leaving it kills what still runs."""

    def __init__(
        self,
        role: str,
        setup: Mapping[str, Any],
        access: Access,
        limits: Limits,
        env: Mapping[str, str],
        allow_unsandboxed: bool,
    ) -> None:
        require(allow_unsandboxed=allow_unsandboxed)
        self.conversation = Conversation()
        self._role, self._limits = role, limits
        self._tail = bytearray()
        self._log_bytes = 0
        self._deadline = time.monotonic() + limits.wall_s
        whole = {
            **setup,
            "access": access.to_json(),
            "limits": asdict(limits),
            "parent": os.getpid(),
            "allow_unsandboxed": allow_unsandboxed,
        }
        scratch = access.scratch
        home = {} if scratch is None else {"HOME": str(scratch.absolute()), "TMPDIR": str(scratch.absolute())}
        self._messages, messages_end = os.pipe()
        self._log, log_end = os.pipe()
        try:
            with _memory_file(json.dumps(whole).encode()) as stdin:
                self._process = subprocess.Popen(
                    # As -I (isolated), but with the PYTHON* variables of the environment made here.
                    [sys.executable, "-s", "-P", "-B", "-m", "service.compiler.child", role, str(messages_end)],
                    stdin=stdin,
                    stdout=log_end,
                    stderr=log_end,
                    pass_fds=[messages_end],
                    cwd=scratch or "/",
                    env={**_ENVIRONMENT, **home, **env},
                    start_new_session=True,
                    umask=0o077,
                )
        except BaseException:
            os.close(self._messages)
            os.close(self._log)
            raise
        finally:
            os.close(messages_end)
            os.close(log_end)
        self._watch = Watch(self._process.pid, access, limits)

    def __enter__(self) -> _Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bury()
        os.close(self._messages)
        os.close(self._log)

    def run(self, on_message: Callable[[dict[str, Any]], None], poll: Callable[[], None]) -> _Ending:
        """Listens until the child has ended; raises what ends it before."""
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
            while not self._has_ended():
                # With both pipes closed the end is near; look often, it has no other way to make itself known.
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
                    self._watch.check()
        # Only what it wrote last is still in the pipes: nobody can write to them any more.
        self._signal_group()
        for descriptor, take in hear.items():
            with contextlib.suppress(BlockingIOError):
                while data := os.read(descriptor, _READ_BYTES):
                    take(data)
        return self._bury()

    def _check_time(self, now: float, last_word_at: float | None) -> None:
        if now >= self._deadline:
            raise self.conversation.place(
                BuildTimedOut(
                    f"the {self._role} process took longer than {self._limits.wall_s:g} s",
                    hint="raise OCTET_BUILD_TIME_LIMIT_S, or build a smaller model",
                )
            )
        if last_word_at is not None and now - last_word_at > _EXIT_GRACE_S:
            raise self.conversation.place(
                BuildFailed(
                    f"the {self._role} process did not exit after its last word", hint="please report the model"
                )
            )

    def _keep(self, data: bytes) -> None:
        self._log_bytes += len(data)
        if self._log_bytes > _LOG_TOTAL_BYTES:
            raise self.conversation.place(
                BuildFailed(f"the {self._role} process wrote more than {_LOG_TOTAL_BYTES} bytes to its log")
            )
        self._tail += data
        del self._tail[:-_LOG_TAIL_BYTES]

    def _has_ended(self) -> bool:
        # WNOWAIT leaves it unburied, so that its process group id cannot be given to somebody else meanwhile.
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _signal_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _bury(self) -> _Ending:
        """Kills what is left of the group and reaps the child; the same answer when asked again."""
        if self._process.returncode is None:
            self._signal_group()
            give_up_at = time.monotonic() + _REAP_S
            pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
            while pid == 0 and time.monotonic() < give_up_at:  # later only if the kernel holds it, as a dead disk does
                time.sleep(0.001)
                pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
            if pid != 0:
                self._process.returncode = os.waitstatus_to_exitcode(status)
                self._cpu_s = usage.ru_utime + usage.ru_stime
        code = self._process.returncode
        log = self._tail.decode(errors="replace")
        return _Ending(-signal.SIGKILL, 0.0, log) if code is None else _Ending(code, self._cpu_s, log)


def out_of_memory(who: str, limits: Limits) -> OutOfMemory:
    return OutOfMemory(
        f"{who} needed more than {limits.memory_bytes} bytes of memory",
        hint="raise OCTET_BUILD_MEMORY_LIMIT_BYTES, or build a smaller model",
    )


def is_out_of_memory(text: str) -> bool:
    """Whether native code died of, or complained about, memory; it has no exit status for that."""
    return _OUT_OF_MEMORY.search(text) is not None


def _forward(news: Iterator[dict[str, Any]], on_message: Callable[[dict[str, Any]], None]) -> None:
    for message in news:
        on_message(message)


def _nap() -> tuple[()]:
    time.sleep(0.002)
    return ()


@contextlib.contextmanager
def _memory_file(data: bytes) -> Iterator[int]:
    """A descriptor to read `data` from: unlike a pipe it takes any size before anybody reads."""
    descriptor = os.memfd_create("request", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
