"""TVM's virtual machine, reached through tvm-ffi alone.

`import tvm` reads a hundred modules of a compiler's front end, half a second and 40 MB, even where only the runtime
library is wanted. Running needs that library and the calling convention, and nothing else.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import tvm_ffi

from service.core.errors import Unsupported

_LIBRARY = "libtvm_runtime.so"
_CPU, _FIRST_DEVICE = 1, 0
# Pooled: the machine asks for its activations on every call, and the naive allocator for fresh pages each time.
_POOLED = 2
# A worker that has nothing to do looks around so often, for 0.1 ms, before it sleeps. To wake it takes 20 us. TVM's own
# 300,000 times are 0.2 s after every prediction in which a core that others need is busy.
_LOOKS = 150
_ONE_CORE_PER_THREAD = -2
_SET_MAX_CONCURRENCY = "_ZN3tvm7runtime9threading17SetMaxConcurrencyEi"

_Task = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

processor: Callable[[], int] = ctypes.PyDLL(None).sched_getcpu  # where the calling thread runs, by number


class Machine:
    """One virtual machine for a loaded library; one call at a time."""

    def __init__(self, library: Any) -> None:
        self._module = library["vm_load_executable"]()
        self._module["vm_initialization"](_CPU, _FIRST_DEVICE, _POOLED)

    def __getitem__(self, name: str) -> tvm_ffi.Function:
        function: tvm_ffi.Function = self._module[name]
        return function

    def instrument(self, hook: Callable[..., int]) -> None:
        """From now on `hook(function, name, before, result, *operands)` is called around every call; 0 is go on."""
        self._module["set_instrument"](hook)


def load_library(path: Path) -> Any:
    """Maps a compiled library; its name has to end in `.so`. It is unmapped when nothing refers to it any more."""
    _load_runtime()
    return tvm_ffi.load_module(str(path), keep_module_alive=False)


def config_threads(threads: int, most: int = 0) -> None:
    """How many threads share a kernel that this thread calls, itself included.

    Args:
        most: for how many there will be workers, if there are none yet. They run wherever this thread may.
    """
    if threads == 1:
        _load_runtime()[_SET_MAX_CONCURRENCY](1)  # kernels are then called without asking for workers
        return
    _load_runtime()
    named = ["0"] * max(threads, most)  # by their numbers, which matter only where TVM places its workers
    tvm_ffi.get_global_func("runtime.config_threadpool")(_ONE_CORE_PER_THREAD, threads, named)


def on_each_thread(function: Callable[[int], None]) -> None:
    """Calls `function` with 0 in this thread, and with 1, 2 … in those that share its kernels."""

    def task(thread: int, _group: int, _data: int) -> int:
        function(thread)
        return 0

    _load_runtime().TVMBackendParallelLaunch(_Task(task), None, 0)


@cache
def _load_runtime() -> ctypes.CDLL:
    """TVM's runtime, once per process, with its symbols open to the libraries that are loaded after it.

    Raises:
        Unsupported: it is not installed.
    """
    spec = importlib.util.find_spec("tvm")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        library = Path(folder, "lib", _LIBRARY)
        if library.is_file():
            os.environ["TVM_BIND_THREADS"] = "0"  # `threads` does it
            os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", str(_LOOKS))
            return ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    raise Unsupported(f"{_LIBRARY} is not installed", hint="install the locked requirements again")
