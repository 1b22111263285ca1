"""Tests of aligned memory for tensors."""

from __future__ import annotations

import numpy as np
import pytest

from service.core.artifacts.buffers import aligned_empty, is_aligned
from service.core.artifacts.call_plan import ALIGNMENT_BYTES


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 7, 5, 3)])
@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32", "bool"])
def test_the_first_byte_is_aligned(shape: tuple[int, ...], dtype: str) -> None:
    array = aligned_empty(shape, dtype)
    assert array.ctypes.data % ALIGNMENT_BYTES == 0
    assert (array.shape, array.dtype) == (shape, np.dtype(dtype))


def test_a_view_that_starts_elsewhere_is_not_aligned() -> None:
    array = aligned_empty((130,), "uint8")
    assert is_aligned(array)
    assert is_aligned(array[64:])
    assert not is_aligned(array[1:])
    assert not is_aligned(array[::2])
