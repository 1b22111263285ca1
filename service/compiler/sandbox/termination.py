"""How a child ended, and the error of the build that follows from it."""

from __future__ import annotations

import contextlib
import re
import signal
from dataclasses import dataclass
from pathlib import Path

from service.compiler.sandbox.messages import clean
from service.compiler.sandbox.policy import UNLIMITED_BYTES, Limits
from service.compiler.sandbox.watch import REPORT_IT, too_much_written
from service.core.errors import BuildCrashed, BuildTimedOut, OctetError, OutOfMemory

_FAULT_HANDLER = "Fatal Python error: "  # Python writes this, followed by its stack and a list of modules
_OUT_OF_MEMORY = re.compile(r"bad_alloc|out of memory|Cannot allocate memory|MemoryError|bad_array_new_length", re.I)


@dataclass(frozen=True)
class Termination:
    """How one child ended.

    Attributes:
        status: the exit status, or minus the number of the signal that killed the child.
        cpu_s: the processor time that the child used.
        log: the end of the child's output to stdout and stderr.
        oom_kills: the number of processes on the machine that the kernel killed for lack of memory while the child ran.
    """

    status: int
    cpu_s: float
    log: str
    oom_kills: int

    def explain(self, who: str, limits: Limits) -> OctetError:
        """Returns the error that explains why the child has no result."""
        number = -self.status if self.status < 0 else None
        if number == signal.SIGXCPU or (number == signal.SIGKILL and self.cpu_s >= limits.cpu_s):
            return BuildTimedOut(
                f"{who} used up its {limits.cpu_s:g} s of processor time",
                hint="raise OCTET_BUILD_TIME_LIMIT_S, or build a smaller model",
            )
        if number == signal.SIGXFSZ:
            return too_much_written(limits)
        if number == signal.SIGKILL and self.oom_kills:
            return OutOfMemory(
                f"the kernel killed {who}: the machine or container ran out of memory",
                hint="give the compile worker more memory, or build a smaller model",
            )
        if self.status != 0 and is_out_of_memory(self.log):
            return out_of_memory(who, limits)
        how = "ended without a result"
        if number is not None:
            how = f"died of {_signal_name(number)}"
        elif self.status > 0:
            how = f"exited with status {self.status}"
        own = self.log.partition(_FAULT_HANDLER)[0]
        last = next((line for line in reversed(own.splitlines()) if line.strip()), "")
        return BuildCrashed(
            f"{who} {how}" + (f": {clean(last, 200)}" if last else ""),
            hint="another process killed it; build again" if number == signal.SIGKILL else REPORT_IT,
        )


def out_of_memory(who: str, limits: Limits) -> OutOfMemory:
    if limits.memory_bytes == UNLIMITED_BYTES:
        return OutOfMemory(
            f"{who} could not allocate memory", hint="use a machine with more memory, or a smaller model"
        )
    return OutOfMemory(
        f"{who} needed more than {limits.memory_bytes} bytes of memory",
        hint="raise OCTET_BUILD_MEMORY_LIMIT_BYTES, or build a smaller model",
    )


def is_out_of_memory(text: str) -> bool:
    """Returns true if `text`, the output of native code, reports a lack of memory. No exit status would report it."""
    return _OUT_OF_MEMORY.search(text) is not None


def oom_kills() -> int:
    """Returns the number of processes that the kernel has killed for lack of memory since boot, on the whole
    machine.
    """
    with contextlib.suppress(OSError):
        found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(), re.MULTILINE)
        return int(found[1]) if found else 0
    return 0


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
