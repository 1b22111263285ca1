"""The native library's functions and objects, as `src/library.cc` registers them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tvm_ffi

from service.core.errors import Unsupported

_PATH = Path(__file__).with_name("liboctet.so")

# Takes the inputs of one call as an array of tensors, gives its outputs likewise, in memory of their own.
Runner = tvm_ffi.Function


def _load() -> None:
    if not _PATH.is_file():
        raise Unsupported(f"{_PATH.name} was not built", hint="run make setup or pip install to build it")
    ctypes.CDLL(str(_PATH))  # its initializers register what it has


_load()


def function(name: str) -> Callable[..., Any]:
    """One of the library's functions."""
    found: Callable[..., Any] = tvm_ffi.get_global_func(f"octet.{name}")
    return found


@tvm_ffi.register_object("octet.CoreBudget")
class CoreBudget(tvm_ffi.Object):
    """A fair semaphore of cores. From any thread; see `src/core_budget.h`, whose methods it has."""

    if TYPE_CHECKING:

        def acquire(self, cores: int) -> int: ...
        def release(self, cores: int) -> None: ...
        def cores(self) -> int: ...
        def free(self) -> int: ...
        def waiting(self) -> int: ...

    @staticmethod
    def of(cores: int, window_s: float = 0.1) -> CoreBudget:
        """`window_s`: calls that follow each other within it count as concurrent."""
        budget: CoreBudget = function("core_budget")(cores, window_s)
        return budget


@tvm_ffi.register_object("octet.ThreadTeam")
class ThreadTeam(tvm_ffi.Object):
    """The threads that share the kernels of a call. From any thread; see `src/core_budget.h`, whose methods it has."""

    if TYPE_CHECKING:

        def enter(self, threads: int) -> None: ...
        def leave(self) -> None: ...
        def cores(self) -> int: ...
        def pool(self) -> Any: ...

    @staticmethod
    def of(budget: CoreBudget, prepare: Callable[[Any, int], list[Any]]) -> ThreadTeam:
        """
        Args:
            prepare: makes the calling thread and its workers share kernels among as many threads as its second argument
                says; its first is what it returned first the last time in this thread, or None. What it returns after
                that are the processors on which the thread need not prepare again; none: any.
        """
        team: ThreadTeam = function("thread_team")(budget, prepare)
        return team


def compiled_runner(
    entry: tvm_ffi.Function,
    memory: Sequence[Any],
    team: ThreadTeam,
    threads: int,
    mark: memoryview,
    keep: Sequence[Any],
) -> Runner:
    """A runner that calls `entry` with the inputs and then `memory`; one call at a time, from any thread.

    Args:
        threads: of `team`, at most, that share a call.
        mark: `[1]` uint8, which is 1 while native code of the model runs.
        keep: what has to live for as long as the runner.
    """
    byte = ctypes.c_uint8.from_buffer(mark)
    runner: Runner = function("runner")(entry, list(memory), team, threads, ctypes.addressof(byte), [*keep, byte])
    return runner
