"""liboctet_python: an instance's calls as built-in functions, which read and create NumPy arrays.

With ctypes, and arrays that Python code creates, a call takes 12 µs more than its computation. The library uses only
CPython's stable ABI, so that one build serves every version: `service/native/python`.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from service.core.errors import Unsupported
from service.core.models.arrays import Array

_PATH = Path(__file__).parents[1] / "native" / "liboctet_python.so"

# A function that computes outputs and returns them in new arrays. It returns None if an input is not an array with
# exactly the signature's dtype and shape, in C order.
Call = Callable[..., list[Array] | None]
Run = Callable[[], None]
Dtypes = Sequence[np.dtype[Any]]


@cache
def library() -> ctypes.PyDLL:
    """Loads the library once.

    Raises:
        Unsupported: the library was not built, or does not support this build of Python.
    """
    if not _PATH.is_file():
        raise Unsupported(f"{_PATH.name} was not built", hint="run make setup or pip install to build it")
    if sys.implementation.name != "cpython" or "t" in sys.abiflags:
        raise Unsupported(
            "models run on CPython with a global interpreter lock, not on free-threaded builds nor on other Pythons",
            hint="use another build of Python 3.11 or later",
        )
    return ctypes.PyDLL(str(_PATH))  # a PyDLL keeps the GIL; it loads liboctet_runtime from the same folder


def functions_of(
    model: ctypes.c_void_p, instance: ctypes.c_void_p, inputs: Dtypes, outputs: Dtypes, check: Callable[..., None]
) -> tuple[Call, Run]:
    """Returns two functions that refer to `instance`: one computes with the arrays that it is passed, one with the
    bound tensors.

    Both functions release the GIL while they compute. The first allows only one call at a time.

    Args:
        model, instance: handles of liboctet_runtime.
        inputs, outputs: dtypes in the signature's order.
        check: `check(status, text)` raises the exception for a status other than 0.
    """
    function = library().octet_python_functions
    function.restype = ctypes.py_object
    function.argtypes = [ctypes.c_void_p] * 2 + [ctypes.py_object] * 4
    call, run = function(model, instance, tuple(inputs), tuple(outputs), np.ndarray, check)
    return call, run
