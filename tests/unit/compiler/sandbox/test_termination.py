import signal

import pytest

from service.compiler.sandbox.policy import Limits
from service.compiler.sandbox.termination import Termination, is_out_of_memory
from service.core.errors import BuildCrashed, BuildFailed, BuildTimedOut, OctetError, OutOfMemory

LIMITS = Limits(wall_s=10, cpu_s=5, memory_bytes=1000, file_bytes=2000)


def explained(status: int, *, cpu_s: float = 0, log: str = "", oom_kills: int = 0) -> OctetError:
    return Termination(status, cpu_s, log, oom_kills).explain("the build process", LIMITS)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (explained(-signal.SIGSEGV), BuildCrashed, "the build process died of SIGSEGV"),
        (explained(-signal.SIGKILL), BuildCrashed, "the build process died of SIGKILL"),
        (explained(-signal.SIGKILL, oom_kills=1), OutOfMemory, "the kernel killed the build process: the machine"),
        (explained(-signal.SIGSEGV, oom_kills=1), BuildCrashed, "died of SIGSEGV"),
        (explained(-signal.SIGKILL, cpu_s=5.1), BuildTimedOut, "used up its 5 s of processor time"),
        (explained(-signal.SIGXCPU), BuildTimedOut, "used up its 5 s of processor time"),
        (explained(-signal.SIGXFSZ), BuildFailed, "wrote more than 2000 bytes"),
        (explained(-signal.SIGABRT, log="std::bad_alloc"), OutOfMemory, "needed more than 1000 bytes"),
        (explained(1, log="LLVM ERROR: out of memory"), OutOfMemory, "needed more than 1000 bytes"),
        (explained(0, log="out of memory"), BuildCrashed, "ended without a result: out of memory"),
        (explained(7, log="first\nsecond\n\n"), BuildCrashed, "exited with status 7: second"),
        (explained(-200), BuildCrashed, "died of signal 200"),
        (explained(3, log="x" * 10_000), BuildCrashed, "exited with status 3: xxx"),
    ],
)
def test_every_exit_status_has_its_error(error: OctetError, kind: type[OctetError], message: str) -> None:
    assert type(error) is kind
    assert message in error.message
    assert len(error.message) < 300
    assert error.hint


@pytest.mark.parametrize("text", ["std::bad_alloc", "Cannot allocate memory", "MemoryError", "Out Of Memory"])
def test_messages_about_lack_of_memory_are_recognized(text: str) -> None:
    assert is_out_of_memory(f"some text {text} more")
    assert not is_out_of_memory("some other text")
