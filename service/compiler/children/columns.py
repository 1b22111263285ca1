"""The columns of a layer's operand, `[groups, K, positions]`.

The layer multiplies a row of weights by one column to compute each result. For a convolution, a column contains the
elements in one window of the operand. The moments of the columns show how a change of the weights changes the results.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from service.compiler.messages.observing import Windows
from service.core.models.arrays import Array

POSITIONS = 2048  # the largest number of columns of one input for which products are summed


def taps(x: Array, windows: Windows) -> Iterator[Array]:
    """Yields the values that each kernel tap (one element of the kernel window) reads, `[C, positions]`. A matrix
    product has one tap, which reads `[K, positions]`.
    """
    if windows.kernel is None:
        yield x.reshape(-1, x.shape[-1]).T
        return
    reach = [(size - 1) * step + 1 for size, step in zip(windows.kernel, windows.dilations, strict=True)]
    before, behind = _padding(x.shape[2:], windows, reach)
    padded = np.pad(x, [(0, 0), (0, 0), *zip(before, behind, strict=True)])
    sizes = [
        (size - own) // stride + 1 for size, own, stride in zip(padded.shape[2:], reach, windows.strides, strict=True)
    ]
    for position in itertools.product(*map(range, windows.kernel)):
        starts = [at * step for at, step in zip(position, windows.dilations, strict=True)]
        parts = zip(starts, sizes, windows.strides, strict=True)
        cut = padded[:, :, *(slice(start, start + (size - 1) * stride + 1, stride) for start, size, stride in parts)]
        yield cut.swapaxes(0, 1).reshape(x.shape[1], -1)


def columns(x: Array, windows: Windows, positions: int | None = None) -> Array:
    """Returns the columns `[groups, K, positions]`, with K in the order of ONNX's weights.

    Args:
        positions: the largest number of columns to return. If there are more, evenly spaced ones are returned. None for
            all columns.
    """
    rows = []
    for tap in taps(x, windows):
        total = tap.shape[1]
        few = positions is not None and total > positions
        rows.append(tap[:, np.linspace(0, total - 1, positions).astype(np.int64)] if few and positions else tap)
    stacked = np.stack(rows, axis=1)  # [C, taps, positions]
    return np.asarray(stacked.reshape(windows.groups, -1, stacked.shape[-1]))


def means(x: Array, windows: Windows) -> Array:
    """Returns the mean of all columns, `[groups, K]` float64."""
    rows = [tap.mean(axis=1, dtype=np.float64) for tap in taps(x, windows)]
    return np.asarray(np.stack(rows, axis=1).reshape(windows.groups, -1))


def products(x: Array, windows: Windows) -> Array:
    """Returns the sum of the outer products of each column with itself, `[groups, K + 1, K + 1]` float64.

    A one is appended to each column, so that the result also contains the sum of the columns and their number. At most
    `POSITIONS` columns are used.
    """
    found = columns(x, windows, POSITIONS)
    ones = np.ones((len(found), 1, found.shape[2]), found.dtype)
    wide = np.concatenate([found, ones], axis=1).astype(np.float64)
    return np.asarray(wide @ wide.transpose(0, 2, 1))


def rounded(x: Array, low: int, high: int, scale: float, zero_point: int) -> Array:
    """Quantizes and dequantizes `x`, as the operand of a quantized layer is. Returns float32."""
    steps = np.clip(np.rint(x / np.float32(scale)) + zero_point, low, high)
    return np.asarray((steps - zero_point) * np.float32(scale), np.float32)


def _padding(sizes: tuple[int, ...], windows: Windows, reach: list[int]) -> tuple[list[int], list[int]]:
    if not windows.auto_pad.startswith("SAME"):
        half = len(sizes)
        pads = (0,) * 2 * half if windows.auto_pad == "VALID" else windows.pads
        return list(pads[:half]), list(pads[half:])
    totals = [
        max((math.ceil(size / stride) - 1) * stride + own - size, 0)
        for size, stride, own in zip(sizes, windows.strides, reach, strict=True)
    ]
    less, more = [total // 2 for total in totals], [total - total // 2 for total in totals]
    return (less, more) if windows.auto_pad == "SAME_UPPER" else (more, less)
