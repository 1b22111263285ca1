"""The thread pool of the runtime, without the rest of the runtime, and tasks in C for it."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.native import build

_ROOT = Path(__file__).parents[2]
_TESTS = _ROOT / "tests/native/runtime"
_PARTS = (
    "core_budget error group parallel placement region team team_library thread_tuner topology worker workspace".split()  # noqa: SIM905
)
_SOURCES = [_ROOT / f"service/native/runtime/{part}.cc" for part in _PARTS]
_OPTIONS = ("-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{_ROOT}", "-pthread")


class Loop(ctypes.Structure):
    """The `struct loop` of `tasks.c`."""

    _fields_ = (
        ("iterations", ctypes.c_int32),
        ("times", ctypes.POINTER(ctypes.c_int32)),
        ("threads", ctypes.POINTER(ctypes.c_int32)),
        ("errors", ctypes.POINTER(ctypes.c_int32)),
        ("num_task", ctypes.c_int32),
        ("pause_us", ctypes.c_int32),
        ("launch", ctypes.c_void_p),
        ("nested", ctypes.c_void_p),
    )

    @classmethod
    def of(cls, iterations: int, errors: Sequence[int] = (), pause_us: int = 0) -> Loop:
        numbers = ctypes.c_int32 * max(1, iterations)
        return cls(iterations, numbers(), numbers(), numbers(*errors), 0, pause_us)

    @property
    def computed(self) -> list[int]:
        return list(self.times[: self.iterations])


class Nap(ctypes.Structure):
    """The `struct nap` of `tasks.c`."""

    _fields_ = (
        ("caller", ctypes.c_int32),
        ("is_begun", ctypes.c_int32),
        ("naps_ms", ctypes.c_int32),
        ("before", ctypes.c_uint64 * 16),
        ("after", ctypes.c_uint64 * 16),
    )


class RuntimeThreads:
    """The libraries built from `harness.cc` and `tasks.c`."""

    def __init__(self, library: Path, tasks: Path) -> None:
        self._library, self._tasks = ctypes.CDLL(str(library)), ctypes.CDLL(str(tasks))
        for name in ("octet_team_new", "octet_team_default", "allocate", "budget_new", "flow_new"):
            self[name].restype = ctypes.c_void_p
        self["octet_error"].restype = ctypes.c_char_p

    def __getitem__(self, name: str) -> Any:
        return getattr(self._library, name)

    def task(self, name: str) -> ctypes.c_void_p:
        return ctypes.cast(self._tasks[name], ctypes.c_void_p)

    def launch(self, name: str, data: ctypes.Structure, tasks: int = 0) -> int:
        return int(self._library.launch(self.task(name), ctypes.byref(data), tasks))

    @contextmanager
    def team(
        self, cores: Sequence[int], caches: Sequence[int] = (), budget: int = 0, window_s: float = 0.1
    ) -> Iterator[Team]:
        """Creates a team of threads.

        Args:
            cores: the processor of each core of the team. A processor may occur several times.
        """
        made = self.new_team(cores, range(len(cores)), caches or [0] * len(cores), budget, window_s)
        assert made is not None, self._library.octet_error()
        try:
            yield Team(self, made)
        finally:
            self._library.octet_team_free(ctypes.c_void_p(made))

    def new_team(
        self, processors: Sequence[int], cores: Sequence[int], caches: Sequence[int], budget: int, window_s: float = 0.1
    ) -> int | None:
        numbers = ctypes.c_int32 * len(processors)
        made: int | None = self._library.octet_team_new(
            numbers(*processors), numbers(*cores), numbers(*caches), len(processors), budget, ctypes.c_double(window_s)
        )
        return made


class Turn(ctypes.Structure):
    """The struct `octet::Turn` of `core_budget.h`."""

    _fields_ = (
        ("cores", ctypes.c_int32),
        ("is_minor", ctypes.c_bool),
        ("is_overdrawn", ctypes.c_bool),
        ("flow", ctypes.c_void_p),
        ("expected_s", ctypes.c_double),
        ("begun_ns", ctypes.c_int64),
    )


class Team:
    """An `octet_team`."""

    def __init__(self, threads: RuntimeThreads, handle: int) -> None:
        self._threads, self.handle = threads, ctypes.c_void_p(handle)

    @contextmanager
    def lease(self, threads: int = 0) -> Iterator[None]:
        self._threads["octet_team_enter"](self.handle, threads)
        try:
            yield
        finally:
            self._threads["octet_team_leave"](self.handle)

    @property
    def cores(self) -> int:
        return int(self._threads["octet_team_cores"](self.handle))

    @property
    def free(self) -> int:
        return int(self._threads["octet_team_free_cores"](self.handle))

    @property
    def waiting(self) -> int:
        return int(self._threads["octet_team_waiting"](self.handle))


def compile_threads(folder: Path) -> RuntimeThreads:
    library, tasks = folder / "harness.so", folder / "tasks.so"
    options = [*_OPTIONS, "-fPIC", "-fvisibility=hidden"]
    build([*_SOURCES, _TESTS / "harness.cc"], library, options, ["-shared", "-pthread"])
    compiler = [sys.executable, "-m", "ziglang", "cc", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*compiler, _TESTS / "tasks.c", "-o", tasks], check=True)
    return RuntimeThreads(library, tasks)


def tasks_of_process() -> set[int]:
    """Returns the kernel's ids of the threads of this process."""
    return {int(path.name) for path in Path("/proc/self/task").iterdir()}


def workers() -> set[int]:
    """Returns the ids of the threads that a team has started."""
    return {task for task in tasks_of_process() if _comm(task) == "octet-worker"}


def allowed(task: int) -> set[int]:
    """Returns the processors on which a thread of this process may run."""
    status = Path(f"/proc/self/task/{task}/status").read_text()
    ranges = re.findall(r"(\d+)(?:-(\d+))?", re.findall("Cpus_allowed_list:(.*)", status)[0])
    return {cpu for first, last in ranges for cpu in range(int(first), int(last or first) + 1)}


def mask(words: Sequence[int]) -> set[int]:
    """Returns the processors in a `cpu_set_t`."""
    return {64 * index + bit for index, word in enumerate(words) for bit in range(64) if word >> bit & 1}


def _comm(task: int) -> str:
    try:
        return Path(f"/proc/self/task/{task}/comm").read_text().strip()
    except OSError:  # the thread has ended
        return ""
