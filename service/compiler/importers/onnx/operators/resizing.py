"""Resize: changes the size of images. It selects the nearest element, or interpolates between two or four elements
along each axis.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax

from service.compiler.importers.channels_first import in_channels_last
from service.compiler.importers.names import shortened
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators import antialiasing
from service.compiler.importers.onnx.operators.real import float32
from service.compiler.importers.real import Real, Wide
from service.compiler.importers.resizing import PLACES, bilinear
from service.compiler.qnn import ops
from service.core.models.arrays import Array

_LARGEST = 1 << 16  # size of an axis
_HALF = np.float32(0.5)
_CROPPED = "tf_crop_and_resize"

_ROUND: dict[str, Callable[[Array], Array]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round_prefer_ceil": lambda x: np.floor(x + _HALF),
    "round_prefer_floor": lambda x: np.ceil(x - _HALF),
}


def resize(node: Node) -> Value:
    """Inputs: X, roi, scales, sizes. Up to operator set 10, the inputs are X and scales, the coordinates are
    asymmetric, and positions are rounded down.

    If the nearest element is selected, elements are copied. Interpolation of images is float32, as in ONNX Runtime.
    Interpolation of other tensors is float64, one axis after the other. With `antialias`, it is float32
    (`antialiasing`).
    """
    old = node.state.model.opset < 11
    mode = node.attribute("mode", "nearest")
    corners = node.attribute("coordinate_transformation_mode", "asymmetric" if old else "half_pixel")
    if mode not in ("nearest", "linear", "cubic") or corners not in (*PLACES, _CROPPED):
        node.unsupported(f"has the mode {mode} with {corners}, which cannot be compiled")
    shape = node.shape(0)
    sizes, scales = _sizes(node, 1 if old else 2)
    if corners == _CROPPED:
        return _cropped(node, mode, sizes)
    positions = [
        PLACES[corners](np.arange(after, dtype=np.float32), scale, before, after)
        for before, after, scale in zip(shape, sizes, scales, strict=True)
    ]
    moving = [axis for axis, (before, after) in enumerate(zip(shape, sizes, strict=True)) if before != after]
    if node.attribute("antialias", 0):
        node.require(mode != "nearest", "has antialias with the mode nearest")
        filters = [antialiasing.Filter(mode, node.attribute("cubic_coeff_a", -0.75), scale) for scale in scales]
        return antialiasing.resized(node, {axis: filters[axis].taps(node, positions[axis], axis) for axis in moving})
    if mode == "linear" and len(shape) == 4 and {2, 3} >= {*moving}:
        return _bilinear(node, positions[2:])
    if mode == "cubic" and len(shape) in (2, 4) and {len(shape) - 2, len(shape) - 1} >= {*moving}:
        return _bicubic(node, positions)
    if mode != "nearest":
        taps = _linear if mode == "linear" else _cubic
        return _interpolated(node, {axis: taps(node, positions[axis], shape[axis]) for axis in moving})
    rounding = _rounding(node, "floor" if old else "round_prefer_floor")
    x, kind = node.expr(0), node.state.types.get(node.name(0))
    nearest_of = [
        np.clip(rounding(position), 0, extent - 1).astype(np.int64)
        for position, extent in zip(positions, shape, strict=True)
    ]
    if len(shape) == 4 and {2, 3} >= {*moving} and kind is not None and kind.is_per_tensor:
        rows, columns = (each.tolist() for each in nearest_of[2:])
        taken = in_channels_last(node.emit, x, lambda image: ops.take_pixels(image, kind, rows=rows, columns=columns))
        return node.typed(taken, kind)
    for axis in moving:
        nearest = nearest_of[axis]
        x = node.emit(relax.op.take(x, node.literal(nearest), axis, mode="clip"), "nearest")
    return node.with_input_type(node.emit(x))


def _cropped(node: Node, mode: str, sizes: Sequence[int]) -> Value:
    """Resizes a part of the operand (roi). Elements whose position is outside of the operand have the value
    `extrapolation_value`.
    """
    node.require_supported(mode != "cubic", f"has the mode {mode} with {_CROPPED}, which cannot be compiled")
    float32(node)
    shape, region = node.shape(0), node.data(1).astype(np.float32)
    axes = _axes(node, len(shape))
    node.require(region.size == 2 * len(axes), f"has a roi of {region.size} values for {len(axes)} axes")
    bounds = {axis: (region[index], region[len(axes) + index]) for index, axis in enumerate(axes)}
    positions, moving = [np.arange(size, dtype=np.float32) for size in shape], list[int]()
    for axis, (start, end) in bounds.items():
        before, after = shape[axis] - 1, sizes[axis]
        if after == shape[axis]:  # ONNX Runtime does not move elements along such an axis
            continue
        place = np.arange(after, dtype=np.float32)
        width = (place * (end - start) * np.float32(before)) / np.float32(max(after - 1, 1))
        middle = np.float32(0.5) * (start + end) * np.float32(before)
        positions[axis] = start * np.float32(before) + width if after > 1 else np.full(1, middle, np.float32)
        moving.append(axis)
    if mode == "nearest":
        x: relax.Expr = node.expr(0)
        for axis in moving:
            nearest = np.clip(_rounding(node, "round_prefer_floor")(positions[axis]), 0, shape[axis] - 1)
            x = node.emit(relax.op.take(x, node.literal(nearest.astype(np.int64)), axis, mode="clip"), "nearest")
    elif len(shape) == 4 and {2, 3} >= {*moving}:
        x = _bilinear(node, positions[2:])
    else:
        x = _interpolated(node, {axis: _linear(node, positions[axis], shape[axis]) for axis in moving})
    outside = np.zeros([1] * len(shape), bool)
    for axis in moving:
        own = (positions[axis] < 0) | (positions[axis] > shape[axis] - 1)
        outside = outside | own.reshape(-1, *[1] * (len(shape) - axis - 1))
    if not outside.any():
        return node.emit(x)
    fill = relax.const(np.array(node.attribute("extrapolation_value", 0.0), np.float32))
    return node.emit(relax.op.where(node.literal(outside), fill, x))


def _rounding(node: Node, default: str) -> Callable[[Array], Array]:
    name = node.attribute("nearest_mode", default)
    node.require(name in _ROUND, f"has the unknown nearest_mode {shortened(name)}")
    return _ROUND[name]


def _kept_ratio(node: Node, axes: Sequence[int], sizes: list[int], factors: list[np.float32]) -> None:
    """Replaces the sizes and their ratios by those that keep the ratio of the axes (`AdjustOutputSizeAsPolicy` in
    core/providers/cpu/tensor/upsamplebase.h).
    """
    policy = node.attribute("keep_aspect_ratio_policy", "stretch")
    node.require(policy in ("not_larger", "not_smaller"), f"has the unknown policy {shortened(policy)}")
    ratio = (min if policy == "not_larger" else max)(factors[axis] for axis in axes)
    for axis in axes:
        factors[axis] = ratio
        sizes[axis] = int(np.floor(ratio * np.float32(node.shape(0)[axis]) + _HALF))


def _sizes(node: Node, scales: int) -> tuple[list[int], list[np.float32]]:
    """Returns the sizes of the result, and their ratios to the sizes of the operand."""
    shape = node.shape(0)
    axes = _axes(node, len(shape))
    sizes, factors = list(shape), [np.float32(1)] * len(shape)
    given: Array
    by_sizes = node.has(3) and node.data(3).size > 0  # an empty list means that sizes are not given
    if by_sizes:
        given = np.array(node.integers(3))
    else:
        given = node.data(scales)
        node.require(
            given.dtype == np.float32 and given.ndim == 1,
            f"has scales of {given.dtype} {list(given.shape)}, not a float32 list",
        )
        node.require(bool((given > 0).all()), "has a scale that is not positive")
        node.require_supported(bool((given < _LARGEST).all()), f"has a scale of {given.max()}, which is too large")
    node.require(len(given) == len(axes), f"has {len(given)} sizes or scales for {len(axes)} axes")
    for axis, value in zip(axes, given, strict=True):
        if by_sizes:
            sizes[axis], factors[axis] = int(value), np.float32(value) / np.float32(shape[axis])
        else:
            sizes[axis], factors[axis] = int(np.floor(shape[axis] * value)), value
    if by_sizes and node.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        _kept_ratio(node, axes, sizes, factors)
    node.require_supported(
        all(0 < size <= _LARGEST for size in sizes),
        f"resizes {list(shape)} to {sizes[:8]}, which is empty or too large",
    )
    return sizes, factors


def _axes(node: Node, rank: int) -> list[int]:
    """Returns the axes to which sizes or scales apply: all axes, or those in an attribute."""
    return node.axes(node.attribute("axes", tuple(range(rank))), rank)


def _bilinear(node: Node, positions: Sequence[Array]) -> Value:
    float32(node)
    height, width = (len(position) for position in positions)
    node.state.constants.charge(24 * height + 48 * width, shortened(node.output))
    return node.emit(bilinear(Real(node.emit, node.expr(0)), (2, 3), positions))


def _bicubic(node: Node, positions: Sequence[Array]) -> Value:
    """Resizes images by interpolation between four elements, along the columns and then along the rows (`ResizeBiCubic`
    in core/providers/cpu/tensor/upsample.cc). Weights are float32, and sums start at the first element. Outside of the
    image, the edge element counts; or, with `exclude_outside`, no element counts, and the sum is divided by the sum of
    the remaining weights.
    """
    float32(node)
    shape, outside = node.shape(0), not node.attribute("exclude_outside", 0)
    a, real = np.float32(node.attribute("cubic_coeff_a", -0.75)), Real(node.emit, node.expr(0))
    x: relax.Expr = real.x
    for axis in (len(shape) - 1, len(shape) - 2):
        position = np.asarray(positions[axis], np.float32)
        first = np.floor(position).astype(np.int64)
        weights = _cubic_weights(position - first.astype(np.float32), a)
        at = [first + step for step in (-1, 0, 1, 2)]
        extent = (-1, 1) if axis == len(shape) - 2 else (-1,)
        total = None
        if not outside:
            weights = [
                np.where((each >= 0) & (each < shape[axis]), weight, np.float32(0))
                for each, weight in zip(at, weights, strict=True)
            ]
            total = ((weights[0] + weights[1]) + weights[2]) + weights[3]
        if total is not None and axis == len(shape) - 1:
            weights, total = [weight / total for weight in weights], None
        parts = []
        for each, weight in zip(at, weights, strict=True):
            taken = real.apply(relax.op.take, x, node.literal(np.clip(each, 0, shape[axis] - 1)), axis)
            part = real.apply(relax.op.multiply, taken, node.literal(weight.reshape(extent)))
            if total is not None:
                part = real.apply(relax.op.divide, part, node.literal(total.reshape(extent)))
            parts.append(part)
        x = functools.reduce(lambda one, other: real.apply(relax.op.add, one, other), parts)
    return node.emit(x)


def _cubic_weights(s: Array, a: np.float32) -> list[Array]:
    """Returns `GetCubicCoeffs` for distances from 0 to 1, with each step in float32."""
    one, two, three, four, five, eight = map(np.float32, (1, 2, 3, 4, 5, 8))

    def far(x: Array) -> Array:
        return np.asarray(((a * x - five * a) * x + eight * a) * x - four * a)

    def near(x: Array) -> Array:
        return np.asarray(((a + two) * x - (a + three)) * x * x + one)

    return [far(s + one), near(s), near(one - s), far(two - s)]


# For each element of the result: positions in the operand, and the weight of the element at each position.
Taps = list[tuple[Array, Array]]


def _linear(_node: Node, index: Array, size: int) -> Taps:
    inside = np.clip(index.astype(np.float64), 0, size - 1)
    first = np.floor(inside).astype(np.int64)
    weight = inside - first
    return [(first, 1 - weight), (np.minimum(first + 1, size - 1), weight)]


def _cubic(node: Node, index: Array, size: int) -> Taps:
    """Returns Keys' kernel of four elements (Cubic Convolution Interpolation, 1981). Outside of the image, the edge
    element counts; with `exclude_outside`, no element counts.
    """
    a, whole = node.attribute("cubic_coeff_a", -0.75), index.astype(np.float64)
    first = np.floor(whole).astype(np.int64)
    positions = [first + step for step in (-1, 0, 1, 2)]
    weights = [_keys(np.abs(whole - each), a) for each in positions]
    if node.attribute("exclude_outside", 0):
        weights = [np.where((at >= 0) & (at < size), weight, 0) for at, weight in zip(positions, weights, strict=True)]
        total = sum(weights)
        weights = [weight / total for weight in weights]
    return [(np.clip(at, 0, size - 1), weight) for at, weight in zip(positions, weights, strict=True)]


def _keys(x: Array, a: float) -> Array:
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _interpolated(node: Node, taps: dict[int, Taps]) -> Value:
    float32(node)
    rank = len(node.shape(0))
    wide = Wide(node.emit, node.expr(0))
    x = wide.x
    for axis, each in taps.items():
        parts = []
        for positions, weight in each:
            taken = wide(relax.op.take(x, node.literal(positions), axis, mode="clip"))
            factor = node.literal(np.asarray(weight.reshape(-1, *[1] * (rank - axis - 1))))
            parts.append(wide(relax.op.multiply(taken, factor)))
        x = parts[0]
        for part in parts[1:]:
            x = wide(relax.op.add(x, part))
    return wide.rounded(x)
