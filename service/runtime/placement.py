"""Threads of a measurement: how many share a call, and which core each of them runs on.

TVM makes as many threads as it likes (half of the processors at most, unless `TVM_NUM_THREADS` says otherwise), pins
its workers to processors by number, whether this process may use them or not, and leaves the calling thread, which
works too, to the scheduler, which may put it beside a worker. A measurement says what it measured instead.
"""

from __future__ import annotations

import os
from pathlib import Path

import tvm_ffi

from service.core.errors import InvalidInput, Unsupported


class Placement:
    """A number of threads, on a core each: for a process that has not loaded TVM's runtime yet, and that measures."""

    def __init__(self, threads: int) -> None:
        """
        Args:
            threads: per call, the calling one included; 0 for all the cores that this process may use.

        Raises:
            InvalidInput: it may not use so many.
        """
        self._cores = sorted(os.sched_getaffinity(0))
        self.threads = threads or len(self._cores)
        if self.threads > len(self._cores):
            raise InvalidInput(f"this process may use {len(self._cores)} cores, and {threads} threads want one each")
        self._others = _threads()
        os.environ["TVM_NUM_THREADS"] = str(self.threads)

    def pin(self) -> tuple[int, ...]:
        """Once a model is loaded, for `threads`: moves every thread to its core. The cores, this thread's first.

        Raises:
            Unsupported: TVM has made another number of threads.
        """
        made = tvm_ffi.get_global_func("runtime.NumThreads")()
        if made != self.threads:
            raise Unsupported(f"TVM runs {made} threads in this process, and {self.threads} were asked for")
        threads = [0, *sorted(_threads() - self._others)]
        cores = tuple(self._cores[: self.threads])
        for thread, core in zip(threads, cores, strict=False):
            os.sched_setaffinity(thread, {core})
        return cores


def _threads() -> set[int]:
    return {int(path.name) for path in Path("/proc/self/task").iterdir()}
