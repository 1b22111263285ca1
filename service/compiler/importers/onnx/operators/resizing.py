"""Resize: images of another size, the nearest element or between two along each axis."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.model import Array
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import float32
from service.compiler.importers.real import Wide

_LARGEST = 1 << 16  # of an axis
_HALF = np.float32(0.5)

# (places in the result, scale, sizes before and after) -> places in the operand, float32, as ONNX Runtime computes them
# (core/providers/cpu/tensor/upsamplebase.h, GetOriginalCoordinateFromResizedCoordinate).
_PLACES: dict[str, Callable[[Array, np.float32, int, int], Array]] = {
    "align_corners": lambda x, _scale, before, after: (
        x * np.float32(before - 1) / np.float32(after - 1) if after > 1 else np.zeros_like(x)
    ),
    "asymmetric": lambda x, scale, _before, _after: x / scale,
    "half_pixel": lambda x, scale, _before, _after: (x + _HALF) / scale - _HALF,
    "pytorch_half_pixel": lambda x, scale, _before, after: (
        (x + _HALF) / scale - _HALF if after > 1 else np.zeros_like(x)
    ),
}
_ROUND: dict[str, Callable[[Array], Array]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round_prefer_ceil": lambda x: np.floor(x + _HALF),
    "round_prefer_floor": lambda x: np.ceil(x - _HALF),
}


def resize(node: Node) -> Value:
    """X, roi, scales, sizes; up to operator set 10 X and scales, which is asymmetric and rounds down.

    Nearest elements are moved as they are; linear interpolation is of float32, in float64, one axis after the other.
    """
    old = node.state.model.opset < 11
    mode = node.attribute("mode", "nearest")
    corners = node.attribute("coordinate_transformation_mode", "asymmetric" if old else "half_pixel")
    if mode not in ("nearest", "linear") or corners not in _PLACES or node.attribute("antialias", 0):
        node.unsupported(f"interpolates by {mode}, {corners}")
    shape = node.shape(0)
    sizes, scales = _sizes(node, 1 if old else 2)
    places = [
        _PLACES[corners](np.arange(after, dtype=np.float32), scale, before, after)
        for before, after, scale in zip(shape, sizes, scales, strict=True)
    ]
    moving = [axis for axis, (before, after) in enumerate(zip(shape, sizes, strict=True)) if before != after]
    if mode == "linear":
        return _linear(node, {axis: places[axis] for axis in moving})
    rounding = node.attribute("nearest_mode", "floor" if old else "round_prefer_floor")
    node.require(rounding in _ROUND, f"rounds by {rounding}")
    x = node.expr(0)
    for axis in moving:
        nearest = np.clip(_ROUND[rounding](places[axis]), 0, shape[axis] - 1).astype(np.int64)
        x = node.emit(relax.op.take(x, node.literal(nearest), axis, mode="clip"), "nearest")
    return node.kept(node.emit(x))


def _sizes(node: Node, scales: int) -> tuple[list[int], list[np.float32]]:
    """The sizes of the result, and their ratios to the operand's."""
    shape = node.shape(0)
    if "axes" in node.operator.attributes or node.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        node.unsupported("names the axes that it resizes, or keeps their ratio")
    if node.has(3):
        sizes = list(node.integers(3))
        factors = [np.float32(after) / np.float32(before) for before, after in zip(shape, sizes, strict=False)]
    else:
        data = node.data(scales)
        node.require(data.dtype == np.float32 and data.ndim == 1, f"has scales of {data.dtype} {list(data.shape)}")
        factors = list(data)
        node.require(bool((data > 0).all() and (data < _LARGEST).all()), "has a scale that is not positive")
        sizes = [int(np.floor(size * factor)) for size, factor in zip(shape, data, strict=False)]
    fits = len(sizes) == len(shape) and all(0 < size <= _LARGEST for size in sizes)
    node.require(fits, f"makes {sizes[:8]} of {list(shape)}")
    return sizes, factors


def _linear(node: Node, places: dict[int, Array]) -> Value:
    float32(node)
    shape = node.shape(0)
    wide = Wide(node.emit, node.expr(0))
    x = wide.x
    for axis, place in places.items():
        inside = np.clip(place.astype(np.float64), 0, shape[axis] - 1)
        first = np.floor(inside).astype(np.int64)
        second = np.minimum(first + 1, shape[axis] - 1)
        weight = (inside - first).reshape(-1, *[1] * (len(shape) - axis - 1))
        parts = [wide(relax.op.take(x, node.literal(each), axis, mode="clip")) for each in (first, second)]
        scaled = [
            wide(relax.op.multiply(each, node.literal(np.asarray(factor))))
            for each, factor in zip(parts, (1 - weight, weight), strict=True)
        ]
        x = wide(relax.op.add(*scaled))
    return wide.rounded(x)
