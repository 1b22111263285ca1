"""Poolings of images: the largest element of each window, or the average."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from service.compiler.importers.builder.node import Node
from service.compiler.importers.real import Real
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.types import QuantizedType

_MOST_PLACES = 1 << 10  # limit of the positions in a window of real values, each of which becomes an operator
_MOST_ELEMENTS = (1 << 31) - 1  # of a padded image

Pair = tuple[int, int]
Sides = tuple[int, int, int, int]
NO_SIDES = (0, 0, 0, 0)
Combine = Callable[[relax.Expr, relax.Expr], relax.Call]


def overhang(node: Node, size: int, window: int, stride: int, before: int, after: int, *, ceil: str = "") -> int:
    """Returns how far the last window extends beyond the end of an axis, which is negative if elements are left over.

    Args:
        window: the distance from the first to the last element of a window, plus 1.
        ceil: if `any`, the number of windows is rounded up. If `inside`, the last window must also begin inside the
            image or its leading padding.
    """
    padded = size + before + after
    node.require(window <= padded, f"has a window of {window}, which is larger than the {padded} padded elements")
    count = (padded - window + (stride - 1 if ceil else 0)) // stride + 1
    if ceil == "inside" and (count - 1) * stride >= size + before:
        count -= 1
    return (count - 1) * stride + window - size - before


def check_padded(node: Node, others: int, size: Pair, sides: Sides) -> None:
    """Requires that an image can be padded. `others` is the product of its other axes."""
    height, width = size[0] + sides[0] + sides[2], size[1] + sides[1] + sides[3]
    fits = others * height * width <= _MOST_ELEMENTS
    node.require_supported(fits, f"pads its input to {height} by {width}, which is too large")


def check_places(node: Node, places: int, along: str = "") -> None:
    """Requires that windows of `places` real values can be compiled."""
    what = f"has windows of {places} real values{along}; at most {_MOST_PLACES} can be compiled"
    node.require_supported(places <= _MOST_PLACES, what)


@dataclass(frozen=True)
class Windows:
    """The positions of windows.

    Attributes:
        axes: the axes of rows and columns.
        padding: top, left, bottom, right. No window is entirely inside the padding.
    """

    axes: Pair
    size: Pair
    strides: Pair
    padding: Sides

    @property
    def _sides(self) -> list[Pair]:
        top, left, bottom, right = self.padding
        return [(top, bottom), (left, right)]

    def padded(self, real: Real, fill: float) -> relax.Expr:
        """Returns the image surrounded by `fill`."""
        if not any(self.padding):
            return real.x
        widths = [(0, 0)] * len(shape_of(real.x))
        for axis, sides in zip(self.axes, self._sides, strict=True):
            widths[axis] = sides
        return real(relax.op.nn.pad(real.x, [each for pair in widths for each in pair], pad_value=fill))

    def shifted(self, real: Real, padded: relax.Expr) -> list[relax.Expr]:
        """Returns an image for each position in the window, row by row. Each contains the elements that the windows
        have at that position.
        """
        return shifted(real, padded, self.axes, self.size, self.strides)

    def counts(self, shape: tuple[int, ...], counted: Sides) -> NDArray[np.float64]:
        """Returns the number of elements of each window along `axes` of an image of `shape`. Elements outside of the
        image are included if they are in the part `counted` of the padding.
        """
        top, left, bottom, right = counted
        rows = []
        parts = zip(self.axes, self._sides, ((top, bottom), (left, right)), self.size, self.strides, strict=True)
        for axis, (before, after), (first, last), size, step in parts:
            extent = shape[axis]
            starts = np.arange((extent + before + after - size) // step + 1) * step - before
            rows.append(np.minimum(starts + size, extent + last) - np.maximum(starts, -first))
        sizes = [1] * len(shape)
        for axis, row in zip(self.axes, rows, strict=True):
            sizes[axis] = len(row)
        return np.asarray(rows[0][:, np.newaxis] * rows[1], np.float64).reshape(sizes)


def shifted(
    real: Real, x: relax.Expr, axes: Sequence[int], size: Sequence[int], strides: Sequence[int]
) -> list[relax.Expr]:
    """Returns an image for each position in a window along `axes`, as `Windows.shifted` does."""
    shape = shape_of(x)
    reach = [(shape[axis] - each) // step * step + 1 for axis, each, step in zip(axes, size, strides, strict=True)]
    return [
        real(relax.op.strided_slice(x, list(axes), list(first), list(np.add(first, reach).tolist()), list(strides)))
        for first in product(*map(range, size))
    ]


def largest(real: Real, windows: Windows, lowest: float = -np.inf) -> relax.Expr:
    """Returns the largest element of each window, as an expression that is not bound yet. For windows of one element,
    this is a slice. `lowest` is the value of the padding.
    """
    return combined(real, windows.shifted(real, windows.padded(real, lowest)), relax.op.maximum)


def average(real: Real, windows: Windows, counted: Sides = NO_SIDES) -> relax.Call:
    """Adds the elements of each window in float64, divides the sum by the number of elements that count, and rounds
    once.
    """
    wide = Real(lambda expr, _: real(expr), real(relax.op.astype(real.x, "float64")))
    parts = windows.shifted(wide, windows.padded(wide, 0.0))
    total = parts[0] if len(parts) == 1 else real(combined(wide, parts, relax.op.add))
    counts = relax.const(windows.counts(shape_of(real.x), counted), "float64")
    return relax.op.astype(real(relax.op.divide(total, counts)), "float32")


def combined(real: Real, parts: list[relax.Expr], combine: Combine) -> relax.Expr:
    """Combines the parts from left to right. If there are several parts, the result is a call that is not bound yet."""
    if len(parts) == 1:
        return parts[0]
    return combine(reduce(lambda one, other: real(combine(one, other)), parts[:-1]), parts[-1])


def pooled(
    node: Node,
    image: relax.Expr,
    windows: Windows,
    types: tuple[QuantizedType, QuantizedType],
    *,
    is_max: bool,
    counted: Pair = (0, 0),
) -> relax.Call:
    """Pools stored values `[N, H, W, C]`.

    Args:
        types: of the image and of the result.
        counted: the padding of rows and of columns that counts in an average. It becomes a part of the image.
    """
    sides, (down, across) = windows.padding, counted
    if any(counted):
        top, left, bottom, right = sides
        widths = [0, 0, down, down, across, across, 0, 0]
        image = node.emit(relax.op.nn.pad(image, widths, pad_value=types[0].zero_point), "padded")
        sides = (top - down, left - across, max(bottom - down, 0), max(right - across, 0))
    make = ops.max_pool2d if is_max else ops.avg_pool2d
    return make(image, *types, pool_size=windows.size, strides=windows.strides, padding=sides)
