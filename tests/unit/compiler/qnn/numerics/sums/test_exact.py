"""Exact sums of products in floating point equal the sums in int64."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.qnn.numerics.sums.exact import Filters, bands, sliding


def _expected(weights: np.ndarray, windows: np.ndarray) -> np.ndarray:
    return np.asarray(np.einsum("gmk,gfk->gmf", windows.astype(np.int64), weights.astype(np.int64)))


@pytest.mark.parametrize(
    ("largest_weight", "largest", "length", "dtype"),
    [
        (127, 255, 64, "float32"),  # One part.
        (127, 255, 2305, "float32"),  # Parts that do not divide the length evenly.
        (127, 65535, 300, "float64"),  # 16-bit inputs would need so many parts that float64 is faster.
    ],
)
def test_the_largest_sums_are_exact(largest_weight: int, largest: int, length: int, dtype: str) -> None:
    weights = np.full((2, 3, length), float(largest_weight))
    weights[1, 2] *= -1
    windows = np.full((2, 5, length), float(largest))
    windows[:, 0, -1] -= 1  # makes sums odd, so that float32 would round them
    filters = Filters(weights, largest)
    assert filters.dtype == dtype
    np.testing.assert_array_equal(filters.products(windows.astype(filters.dtype)), _expected(weights, windows))


def test_float32_alone_would_round_sums_that_are_split_into_parts() -> None:
    weights, windows = np.full((1, 1, 2305), 127.0), np.full((1, 1, 2305), 255.0)
    windows[0, 0, -1] -= 1
    rounded = np.matmul(windows.astype(np.float32), weights.astype(np.float32).transpose(0, 2, 1))
    assert rounded.astype(np.int64) != _expected(weights, windows)


def test_sums_of_random_values_are_exact() -> None:
    rng = np.random.default_rng(0)
    weights = rng.integers(-128, 128, (4, 7, 1155)).astype(np.float64)
    windows = rng.integers(-255, 256, (4, 9, 1155))
    filters = Filters(weights, 255)
    np.testing.assert_array_equal(filters.products(windows.astype(filters.dtype)), _expected(weights, windows))


def test_a_window_contains_the_pixels_under_the_kernel() -> None:
    padded = np.arange(2 * 9 * 8 * 3).reshape(2, 9, 8, 3)
    windows = sliding(padded, (3, 4), (3, 2), (2, 1), (2, 3))
    assert windows.shape == (2, 3, 4, 3, 2, 3)
    np.testing.assert_array_equal(windows[1, 2, 3, 2, 1], padded[1, 2 * 2 + 2 * 2, 3 * 1 + 1 * 3])


def test_bands_cover_every_row_once() -> None:
    windows = np.lib.stride_tricks.as_strided(np.zeros(1), (1, 1000, 100, 3, 3, 64), (0,) * 6)
    rows = [row for band in bands(windows) for row in range(1000)[band]]
    assert rows == list(range(1000))
    assert len(list(bands(windows))) > 1
