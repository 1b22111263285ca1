"""Memory for tensors with the alignment that compiled code expects."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from service.core.artifacts.call_plan import ALIGNMENT_BYTES


def aligned_empty(shape: Sequence[int], dtype: npt.DTypeLike) -> np.ndarray[Any, np.dtype[Any]]:
    """Returns an uninitialized C-ordered array whose address is a multiple of `ALIGNMENT_BYTES`."""
    dtype = np.dtype(dtype)
    size_bytes = prod(shape) * dtype.itemsize
    memory = np.empty(size_bytes + ALIGNMENT_BYTES, np.uint8)
    offset = -memory.ctypes.data % ALIGNMENT_BYTES
    return memory[offset : offset + size_bytes].view(dtype).reshape(shape)


def aligned_copy(array: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
    """Returns a copy of `array` in memory from `aligned_empty`."""
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def as_aligned(array: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
    """Returns `array` if it is C-ordered, aligned and writeable, as DLPack and compiled code need it; else a copy."""
    return array if is_aligned(array) and array.flags.writeable else aligned_copy(array)


def is_aligned(array: np.ndarray[Any, np.dtype[Any]]) -> bool:
    """Returns true if `array` can be passed to compiled code without a copy: C-ordered and aligned."""
    return array.flags.c_contiguous and array.ctypes.data % ALIGNMENT_BYTES == 0
