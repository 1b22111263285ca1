"""GridSample, which reads pixels at positions that a grid contains, and AffineGrid, which computes such a grid.

The steps are those of ONNX Runtime (core/providers/cpu/tensor/grid_sample.cc) in float32. Positions that are not finite
read some pixel of the image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import Convert, float32
from service.compiler.importers.real import Real

_MODES = {"bilinear": "linear", "bicubic": "cubic"}  # names up to operator set 19 -> later names
_PADDINGS = ("zeros", "border", "reflection")
_CUBIC_ALPHA = -0.75


def grid_sample(node: Node) -> Value:
    """Inputs: X `[N, C, H, W]` or `[N, C, D, H, W]`; grid `[N, …, 2 or 3]` with positions from -1 to 1, of which the
    last axis of X comes first.
    """
    float32(node, 0, 1)
    shape, places = node.shape(0), node.shape(1)
    axes = len(shape) - 2
    fits = axes in (2, 3) and len(places) == len(shape) and places[0] == shape[0] and places[-1] == axes
    node.require(fits, f"has the grid {list(places)}, which does not fit the image {list(shape)}")
    named = node.attribute("mode", "linear")
    mode, padding = _MODES.get(named, named), node.attribute("padding_mode", "zeros")
    node.require(mode in ("linear", "nearest", "cubic") and padding in _PADDINGS, "has an unknown mode or padding_mode")
    node.require(mode != "cubic" or axes == 2, "interpolates volumes by cubic functions")
    sampler = _Sampler(node, shape, places, padding, bool(node.attribute("align_corners", 0)))
    result = {"linear": _linear, "nearest": _nearest, "cubic": _cubic}[mode](sampler)
    apart = node.emit(relax.op.reshape(result, (shape[0], sampler.count, shape[1])), "samples")
    moved = node.emit(relax.op.permute_dims(apart, (0, 2, 1)), "moved")
    return node.emit(relax.op.reshape(moved, (shape[0], shape[1], *places[1:-1])))


@dataclass(frozen=True)
class _Sampler:
    """Reads the pixels of images `[N, C, …]`.

    Attributes:
        places: the shape of the grid.
        corners: true if -1 and 1 are the centres of the outermost pixels; otherwise, they are the image's edges.
    """

    node: Node
    shape: Sequence[int]
    places: Sequence[int]
    padding: str
    corners: bool

    @property
    def real(self) -> Real:
        return Real(self.node.emit, self.node.expr(0))

    @property
    def count(self) -> int:
        """The number of positions in each image."""
        return int(np.prod(self.places[1:-1]))

    @property
    def rows(self) -> relax.Expr:
        """The pixels of all images, `[N * pixels, C]`."""
        rank, channels = len(self.shape), self.shape[1]
        last = self.real(relax.op.permute_dims(self.node.expr(0), [0, *range(2, rank), 1]))
        return self.real(relax.op.reshape(last, (int(np.prod(self.shape)) // channels, channels)))

    def positions(self) -> list[relax.Expr]:
        """Returns the position along each axis of the image, from the first axis to the last: `[N * count, 1]`, in
        pixels.
        """
        made, axes = self.real, len(self.shape) - 2
        grid = made(relax.op.reshape(self.node.expr(1), (self.shape[0] * self.count, axes)))
        found = []
        for column, size in zip(range(axes)[::-1], self.shape[2:], strict=True):
            moved = made.apply(relax.op.add, made(relax.op.strided_slice(grid, [1], [column], [column + 1])), 1.0)
            if self.corners:
                half = made.apply(relax.op.divide, moved, 2.0)
                found.append(made.apply(relax.op.multiply, half, float(size - 1)))
            else:
                grown = made.apply(relax.op.subtract, made.apply(relax.op.multiply, moved, float(size)), 1.0)
                found.append(made.apply(relax.op.divide, grown, 2.0))
        return found

    def pixels(self, rows: relax.Expr, at: Sequence[relax.Expr]) -> relax.Expr:
        """Returns the pixels at whole positions along each axis, `[N * count, C]`. A position outside of the image
        reads zeros, the nearest pixel of the edge, or the pixel to which it is reflected.
        """
        made, sizes = self.real, self.shape[2:]
        inside: relax.Expr | None = None
        flat: relax.Expr | None = None
        for position, size in zip(at, sizes, strict=True):
            if self.padding == "reflection":
                position = self._reflected(position, size)
            low = made.apply(relax.op.maximum, position, 0.0)
            bounded = made.apply(relax.op.minimum, low, float(size - 1))
            if self.padding == "zeros":
                same = made.apply(relax.op.equal, bounded, position)
                inside = same if inside is None else made.apply(relax.op.logical_and, inside, same)
            index = made(relax.op.astype(bounded, "int64"))
            if flat is not None:
                scaled = made.apply(relax.op.multiply, flat, self.node.literal(np.array(size, np.int64)))
                index = made.apply(relax.op.add, scaled, index)
            flat = index
        if self.shape[0] > 1:
            starts = np.repeat(np.arange(self.shape[0]) * int(np.prod(sizes)), self.count).reshape(-1, 1)
            flat = made.apply(relax.op.add, flat, self.node.literal(starts.astype(np.int64)))
        wanted = made(relax.op.reshape(flat, (self.shape[0] * self.count,)))
        taken = made(relax.op.take(rows, wanted, 0, mode="clip"))
        return taken if inside is None else made.apply(relax.op.where, inside, taken, 0.0)

    def _reflected(self, position: relax.Expr, size: int) -> relax.Expr:
        """Returns the position, reflected at the image's edges until it is inside (`GsReflect`)."""
        made = self.real
        first, last = (0.0, size - 1.0) if self.corners else (-0.5, size - 0.5)
        extent = max(last - first, 1.0)  # an image of one pixel has no extent between centres
        below = made.apply(relax.op.less, position, first)
        above = made.apply(relax.op.greater, position, last)
        distance = made.apply(
            relax.op.where,
            below,
            made.apply(relax.op.subtract, relax.const(np.float32(first)), position),
            made.apply(relax.op.subtract, position, last),
        )
        times = made.apply(relax.op.floor, made.apply(relax.op.divide, distance, extent))
        rest = made.apply(relax.op.subtract, distance, made.apply(relax.op.multiply, times, extent))
        halves = made.apply(relax.op.multiply, times, 0.5)
        is_odd = made.apply(relax.op.not_equal, made.apply(relax.op.floor, halves), halves)
        from_first = made.apply(relax.op.logical_xor, below, is_odd)
        one, other = (
            made.apply(relax.op.add, rest, first),
            made.apply(relax.op.subtract, relax.const(np.float32(last)), rest),
        )
        moved = made.apply(relax.op.where, from_first, one, other)
        return made.apply(relax.op.where, made.apply(relax.op.logical_or, below, above), moved, position)


def _nearest(sampler: _Sampler) -> relax.Expr:
    at = [sampler.real.apply(relax.op.round, position) for position in sampler.positions()]
    return sampler.pixels(sampler.rows, at)


def _linear(sampler: _Sampler) -> relax.Expr:
    """Interpolates between the pixels on both sides along each axis.

    ONNX Runtime multiplies the weights of images with zeros around them first, and otherwise interpolates along one
    axis after the other.
    """
    made, rows = sampler.real, sampler.rows
    ends, weights = [], []
    for position in sampler.positions():
        low = made.apply(relax.op.floor, position)
        high = made.apply(relax.op.add, low, 1.0)
        ends.append((low, high))
        weights.append((made.apply(relax.op.subtract, high, position), made.apply(relax.op.subtract, position, low)))
    if len(ends) == 2 and sampler.padding == "zeros" and not sampler.corners:
        parts = []
        for row, column in product((0, 1), repeat=2):
            weight = made.apply(relax.op.multiply, weights[0][row], weights[1][column])
            parts.append(made.apply(relax.op.multiply, weight, sampler.pixels(rows, [ends[0][row], ends[1][column]])))
        return _added(made, parts)

    def along(axis: int, at: Sequence[relax.Expr]) -> relax.Expr:
        if axis == len(ends):
            return sampler.pixels(rows, at)
        parts = [
            made.apply(relax.op.multiply, weight, along(axis + 1, [*at, end]))
            for end, weight in zip(ends[axis], weights[axis], strict=True)
        ]
        return _added(made, parts)

    return along(0, [])


def _cubic(sampler: _Sampler) -> relax.Expr:
    """Interpolates between four pixels along the rows, and then between the four results."""
    made, rows = sampler.real, sampler.rows
    steps = []
    for position in sampler.positions():
        first = made.apply(relax.op.subtract, made.apply(relax.op.floor, position), 1.0)
        part = made.apply(relax.op.subtract, made.apply(relax.op.subtract, position, first), 1.0)
        at = [first, *(made.apply(relax.op.add, first, float(step)) for step in (1, 2, 3))]
        steps.append((at, _coefficients(made, part)))
    (down, by_row), (across, by_column) = steps
    results = []
    for row, weight in zip(down, by_row, strict=True):
        parts = [
            made.apply(relax.op.multiply, factor, sampler.pixels(rows, [row, column]))
            for column, factor in zip(across, by_column, strict=True)
        ]
        results.append(made.apply(relax.op.multiply, weight, _added(made, parts)))
    return _added(made, results)


def _coefficients(made: Real, x: relax.Expr) -> list[relax.Expr]:
    """Returns the weights of four pixels of which the second is at the distance `x` (`GsGetCubicCoeffs`)."""
    alpha = _CUBIC_ALPHA

    def add(value: relax.Expr, by: float) -> relax.Expr:
        return made.apply(relax.op.add, value, by)

    def far(x: relax.Expr) -> relax.Expr:
        result = made.apply(relax.op.multiply, x, alpha)
        for by in (-5 * alpha, 8 * alpha):
            result = made.apply(relax.op.multiply, add(result, by), x)
        return add(result, -4 * alpha)

    def near(x: relax.Expr) -> relax.Expr:
        result = add(made.apply(relax.op.multiply, x, alpha + 2), -(alpha + 3))
        for _ in range(2):
            result = made.apply(relax.op.multiply, result, x)
        return add(result, 1.0)

    rest, beyond = (made.apply(relax.op.subtract, relax.const(np.float32(by)), x) for by in (1, 2))
    return [far(add(x, 1.0)), near(x), near(rest), far(beyond)]


def _added(made: Real, parts: Sequence[relax.Expr]) -> relax.Expr:
    total = parts[0]
    for part in parts[1:]:
        total = made.apply(relax.op.add, total, part)
    return total


def affine_grid(node: Node) -> Value:
    """Inputs: theta `[N, 2, 3]` or `[N, 3, 4]`, the size of an image `[N, C, H, W]` or `[N, C, D, H, W]`. Returns the
    positions of its pixels under an affine map, in the form that GridSample reads.
    """
    float32(node)
    size, theta = node.integers(1), node.shape(0)
    axes = len(size) - 2
    node.require(axes in (2, 3) and theta == (size[0], axes, axes + 1), f"has {list(theta)} for the size {list(size)}")
    node.require_supported(0 < int(np.prod(size[2:])) <= 1 << 22, f"has the size {list(size)}, which is too large")
    rows = []
    for extent in size[2:]:
        if node.attribute("align_corners", 0):
            rows.append(np.linspace(-1, 1, extent) if extent > 1 else np.ones(1))  # as in Eigen
        else:
            rows.append((np.arange(extent) * 2 + 1) / extent - 1)
    places = np.meshgrid(*rows, indexing="ij")[::-1]
    base = np.stack([*(place.reshape(-1) for place in places), np.ones(places[0].size)], axis=1).astype(np.float32)
    turned = node.emit(relax.op.permute_dims(node.expr(0), (0, 2, 1)), "turned")
    made = Real(node.emit, turned)
    grid = made(made.in_float64(relax.op.matmul, node.literal(base), turned))
    return node.emit(relax.op.reshape(grid, (size[0], *size[2:], axes)))


GRID: dict[str, tuple[Convert | Callable[[Node], Value], tuple[int, int]]] = {
    "AffineGrid": (affine_grid, (2, 2)),
    "GridSample": (grid_sample, (2, 2)),
}
