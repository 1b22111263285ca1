"""The fused multiply-add of float32 (a * b + c, rounded once), and sums of products that use only it.

NumPy has no fused multiply-add. A small library of plain loops (`service/native/fused`) provides it. A C++ compiler
compiles this library, so that the oracle shares no code with the kernels that it checks.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import numpy as np

from service.core.errors import Unsupported
from service.core.models.arrays import Array

Operand = Array | np.float32 | float

_PATH = Path(__file__).parents[4] / "native" / "liboctet_fused.so"
_PANEL = 32  # columns that the library stores next to each other


@cache
def _library() -> ctypes.CDLL:
    if not _PATH.is_file():
        raise Unsupported(f"{_PATH.name} was not built", hint="run make setup or pip install to build it")
    library, size, address = ctypes.CDLL(str(_PATH)), ctypes.c_size_t, ctypes.c_void_p
    operand = (address, ctypes.c_ssize_t)
    library.octet_fma.restype = None
    library.octet_fma.argtypes = [size, *operand, *operand, *operand, address]
    for products in (library.octet_sums_of_products, library.octet_flushed_sums_of_products):
        products.restype, products.argtypes = None, [size, size, size, address, address, address, address]
    return library


def fma(a: Operand, b: Operand, c: Operand) -> Array:
    """Returns float32(a * b + c), for float32 operands that broadcast."""
    operands = [np.asarray(operand, np.float32) for operand in (a, b, c)]
    result = np.empty(np.broadcast_shapes(*(operand.shape for operand in operands)), np.float32)
    arguments: list[int] = []
    whole = [_repeated(operand, result.shape) for operand in operands]  # must stay alive until the call has returned
    for each in whole:
        arguments += [each.ctypes.data, int(each.size != 1)]
    _library().octet_fma(result.size, *arguments, result.ctypes.data)
    return result


def _repeated(operand: Array, shape: tuple[int, ...]) -> Array:
    """Returns contiguous values: as many as there are results, or a single one."""
    return operand if operand.size == 1 else np.ascontiguousarray(np.broadcast_to(operand, shape))


def sums_of_products(a: Array, b: Array, *, flushed: bool = False) -> Array:
    """Multiplies `[rows, count]` by `[count, columns]` in float32. Each sum starts at 0 and adds one product after the
    other by `fma`.

    Args:
        flushed: true if a sum that is subnormal after a product continues as 0.
    """
    (rows, count), columns = a.shape, b.shape[1]
    if columns < rows and columns < _PANEL:  # columns are computed next to each other
        return sums_of_products(b.T, a.T, flushed=flushed).T
    lhs, rhs = (np.ascontiguousarray(operand, np.float32) for operand in (a, b))
    result, panel = np.empty((rows, columns), np.float32), np.empty(count * _PANEL, np.float32)
    arrays = (lhs, rhs, panel, result)
    library = _library()
    add = library.octet_flushed_sums_of_products if flushed else library.octet_sums_of_products
    add(rows, columns, count, *(array.ctypes.data for array in arrays))
    return result
