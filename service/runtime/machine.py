"""TVM's virtual machine, reached through tvm-ffi alone.

`import tvm` reads a hundred modules of a compiler's front end, half a second and 40 MB, even where only the runtime
library is wanted. Running needs that library and the calling convention, and nothing else.
"""

from __future__ import annotations

import ctypes
import importlib.util
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


class Machine:
    """One virtual machine for a loaded library; one call at a time."""

    def __init__(self, library: Any) -> None:
        self._module = library["vm_load_executable"]()
        self._module["vm_initialization"](_CPU, _FIRST_DEVICE, _POOLED)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] = self._module[name]
        return function

    def instrument(self, hook: Callable[..., int]) -> None:
        """From now on `hook(function, name, before, result, *operands)` is called around every call; 0 is go on."""
        self._module["set_instrument"](hook)


def load_library(path: Path) -> Any:
    """Maps a compiled library; its name has to end in `.so`. It is unmapped when nothing refers to it any more."""
    _load_runtime()
    return tvm_ffi.load_module(str(path), keep_module_alive=False)


def config_threads(threads: int) -> None:
    """How many threads each thread that runs models has beside it, the calling one included."""
    _load_runtime()
    tvm_ffi.get_global_func("runtime.config_threadpool")(1, threads)


@cache
def _load_runtime() -> None:
    """TVM's runtime, once per process, with its symbols open to the libraries that are loaded after it.

    Raises:
        Unsupported: it is not installed.
    """
    spec = importlib.util.find_spec("tvm")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        library = Path(folder, "lib", _LIBRARY)
        if library.is_file():
            ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
            return
    raise Unsupported(f"{_LIBRARY} is not installed", hint="install the locked requirements again")
