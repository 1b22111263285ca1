"""FakeQuantize, which rounds real values to a grid of steps, and the decompression of weights."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from service.compiler.importers.openvino.node import Node
from service.compiler.importers.openvino.values import Compressed, Stored, Value
from service.compiler.qnn import ops
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

_MOST_LEVELS = 256
_FRACTION = 1e-3  # the largest distance between a zero point and the next integer
_BYTES = ("int8", "uint8")


def fake_quantize(node: Node) -> list[Value]:
    """`FakeQuantize` (docs/articles_en/documentation/openvino-ir-format/operation-sets/operation-specs/quantization).

    Values are clamped to the input range, rounded to one of `levels` values, and mapped to the output range.
    """
    node.count(5)
    levels = node.attributes.integer("levels")
    node.require(2 <= levels <= 1 << 16, f"has {levels} levels")
    limits = [node.constant(index).astype(np.float32) for index in range(1, 5)]
    node.require(all(bool(np.isfinite(each).all()) for each in limits), "has a range that is not finite")
    value = node.value(0)
    if isinstance(value, np.ndarray | Compressed):
        return [_weights(node, value, limits, levels)]
    node.require_supported(bool((limits[0] < limits[1]).all()), "has an input range whose ends are equal or swapped")
    types = _types(limits, levels)
    if types is None:
        return [_real(node, limits, levels)]
    in_type, out_type = types
    return [Stored(node.emit(ops.quantize(node.real(0), in_type), "stored"), out_type)]


def _types(limits: list[Array], levels: int) -> tuple[QuantizedType, QuantizedType] | None:
    """Returns the type in which real values are stored, and the type that gives the stored values their meaning. They
    differ if the output range is not the input range. Returns None if a range is not a grid that contains zero.
    """
    if levels > _MOST_LEVELS or any(each.size != 1 for each in limits):
        return None
    ends = [float(each.reshape(-1)[0]) for each in limits]
    found = []
    for low, high in (ends[:2], ends[2:]):
        if not low < high:
            return None
        step = (high - low) / (levels - 1)
        point = -low / step
        whole = round(point)
        if abs(point - whole) > _FRACTION or not 0 <= whole <= levels - 1:
            return None
        found.append(QuantizedType("uint8", (step,), (whole,), storage_min=0, storage_max=levels - 1))
    return found[0], found[1]


def _real(node: Node, limits: list[Array], levels: int) -> Value:
    """Returns the result as real values, for ranges that differ between channels or do not contain zero."""
    low, high, out_low, out_high = limits
    inside = node.step("Min", node.step("Max", node.real(0), low), high)
    steps = node.step("Mul", node.step("Sub", inside, low), (np.float32(levels - 1) / (high - low)))
    factor = (out_high - out_low) / np.float32(levels - 1)
    return node.step("Add", node.step("Mul", node.step("Round", steps), factor), out_low)


def _weights(node: Node, value: Value, limits: list[Array], levels: int) -> Value:
    """Rounds constant weights while importing. They become int8 or uint8 if their zero points are integers."""
    low, high, out_low, out_high = (each.astype(np.float64) for each in limits)
    real = value.values if isinstance(value, Compressed) else value
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.rint((np.clip(real, low, high) - low) / (high - low) * (levels - 1))
        scale = (out_high - out_low) / (levels - 1)
        points = np.where(scale != 0, -out_low / scale, 0.0)
    steps = np.where(real <= np.minimum(low, high), 0, np.where(real > np.maximum(low, high), levels - 1, steps))
    whole = np.rint(points)
    if levels > _MOST_LEVELS or np.any(np.abs(points - whole) > _FRACTION) or not np.isfinite(steps).all():
        return (steps * scale + out_low).astype(np.float32)
    offset = levels // 2  # int8 for symmetric ranges: 127 of 255 levels, 128 of 256
    if np.all(whole == offset):
        return Compressed((steps - offset).astype(np.int8), real.shape, scale.astype(np.float32), None)
    if np.all((whole >= 0) & (whole < levels)):
        return Compressed(steps.astype(np.uint8), real.shape, scale.astype(np.float32), whole.astype(np.uint8))
    return (steps * scale + out_low).astype(np.float32)


def convert(node: Node) -> list[Value]:
    """`Convert`. Constant bytes that become real are weights, which stay stored."""
    node.count(1)
    kind, value = node.attributes.text("destination_type"), node.value(0)
    return [converted(node, value, kind)]


def convert_like(node: Node) -> list[Value]:
    node.count(2)
    other = node.value(1)
    dtype = other.dtype.name if isinstance(other, np.ndarray) else "float32"
    if not isinstance(other, np.ndarray | Compressed | Stored):
        dtype = str(other.ty.dtype)
    return [converted(node, node.value(0), _NAMES[dtype])]


_CAST = {
    "f16": "float32", "f32": "float32", "f64": "float32", "bf16": "float32", "i64": "int64", "i32": "int32",
    "i16": "int16", "i8": "int8", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "boolean": "bool",
}  # fmt: skip
_NAMES = {"float16": "f16", "float32": "f32", "float64": "f64", "bool": "boolean"} | {
    dtype: kind for kind, dtype in _CAST.items() if dtype[0] in "iu"
}
_ONNX_TYPES = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "uint32": 12,
    "uint64": 13,
}  # fmt: skip


def converted(node: Node, value: Value, kind: str) -> Value:
    node.require_supported(kind in _CAST, f"converts to {kind[:20]!a}, which cannot be compiled")
    dtype = _CAST[kind]
    if isinstance(value, Compressed | Stored):
        if dtype == "float32":
            return value
        value = node.real(0)
    if isinstance(value, np.ndarray):
        if dtype == "float32" and value.dtype.name in _BYTES and value.size > 1:
            return Compressed(value, value.shape)
        return value.astype(dtype)
    if str(value.ty.dtype) == dtype:
        return value
    return node.step("Cast", value, to=_ONNX_TYPES[dtype])


def subtract(node: Node) -> list[Value]:
    """`Subtract`. From weights that were converted, it subtracts their zero point."""
    weights = node.value(0)
    if isinstance(weights, Compressed) and weights.scale is None and weights.zero_point is None:
        points = _points(node.value(1))
        if points is not None and _broadcasts(points, weights.data):
            return [Compressed(weights.data, weights.shape, None, points)]
    return node.standard("Sub", node.real(0), node.real(1))


def _points(value: Value) -> Array | None:
    if isinstance(value, Compressed) and value.scale is None and value.zero_point is None:
        return value.data.reshape(value.shape)
    return value if isinstance(value, np.ndarray) else None


def multiply(node: Node) -> list[Value]:
    """`Multiply`. It scales weights that were converted."""
    node.count(2)
    for weights, other in ((node.value(0), node.value(1)), (node.value(1), node.value(0))):
        is_scale = isinstance(other, np.ndarray) and other.dtype.kind == "f"
        if isinstance(weights, Compressed) and weights.scale is None and is_scale and _broadcasts(other, weights.data):
            return [Compressed(weights.data, weights.shape, other.astype(np.float32), weights.zero_point)]
    return node.standard("Mul", node.real(0), node.real(1))


def _broadcasts(part: Array, data: Array) -> bool:
    """Returns true if `part` broadcasts to the shape of `data`."""
    padded = (1,) * (data.ndim - part.ndim) + part.shape
    return part.ndim <= data.ndim and all(a in (1, b) for a, b in zip(padded, data.shape, strict=True))


def reshaped(node: Node, target: tuple[int, ...]) -> Value | None:
    """Returns constant weights in another shape, without decompressing them. Returns None if the first input is not
    constant weights.
    """
    weights = node.value(0)
    if not isinstance(weights, Compressed) or math.prod(target) != math.prod(weights.shape):
        return None
    if weights.scale is not None and weights.scale.size == 1:
        scale, zero = weights.scale.reshape(()), weights.zero_point
        if zero is None or zero.size == 1:
            return Compressed(weights.data.reshape(target), target, scale, None if zero is None else zero.reshape(()))
    if weights.scale is not None and weights.data.shape == weights.shape and _keeps_first(weights, target):
        rows = [1] * (len(target) - 1)
        zero = weights.zero_point
        points = None if zero is None else (zero.reshape(-1, *rows) if zero.size > 1 else zero.reshape(()))
        return Compressed(weights.data.reshape(target), target, weights.scale.reshape(-1, *rows), points)
    return Compressed(weights.data, target, weights.scale, weights.zero_point)


def _keeps_first(weights: Compressed, target: tuple[int, ...]) -> bool:
    """Returns true if the weights have one scale for each index of the first axis, and keep that axis."""
    assert weights.scale is not None
    first = weights.data.shape[0]
    padded = (1,) * (weights.data.ndim - weights.scale.ndim) + weights.scale.shape
    zero = weights.zero_point
    fits = zero is None or zero.size in (1, weights.scale.size)
    return fits and target[:1] == (first,) and padded == (first, *[1] * (len(padded) - 1))


def transposed(node: Node, order: list[int]) -> Value | None:
    """Returns constant weights with permuted axes, without decompressing them; None if the input is not such."""
    weights = node.value(0)
    if not isinstance(weights, Compressed) or weights.data.shape != weights.shape:
        return None
    rank = weights.data.ndim

    def turned(part: Array | None) -> Array | None:
        if part is None or part.ndim == 0:
            return part
        return part.reshape((1,) * (rank - part.ndim) + part.shape).transpose(order)

    data = np.ascontiguousarray(weights.data.transpose(order))
    return Compressed(data, data.shape, turned(weights.scale), turned(weights.zero_point))


def dequantized_sums(node: Node, sums: relax.Expr, scales: Array, axis: int) -> relax.Expr:
    """Returns the real values of int32 sums, with one scale or one for each index of `axis`."""
    found = tuple(float(scale) for scale in scales.reshape(-1))
    type_ = QuantizedType("int32", found, axis=None if len(found) == 1 else axis)
    return ops.dequantize(node.emit(sums, "accumulate"), type_)
