"""FakeQuantize, which rounds real values to a grid of steps, and the decompression of weights."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from service.compiler.importers.openvino.node import Node
from service.compiler.importers.openvino.values import Compressed, Scaled, Steps, Stored, Value
from service.compiler.qnn import ops
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

_MOST_LEVELS = 256
_FRACTION = 1e-3  # the largest distance between a zero point and the next integer
_BYTES = ("int8", "uint8")
_MOST_STEPS = 4  # layers between a convolution and its FakeQuantize: a bias, and activations
# Layers that compute a FakeQuantize after them as a post-operation, and layers that may be between the two.
_FUSING = frozenset(
    {
        *("Convolution", "GroupConvolution", "ConvolutionBackpropData", "GroupConvolutionBackpropData", "MatMul"),
        *("AvgPool", "MaxPool", "ReduceMean", "ReduceSum", "MVN", "NormalizeL2", "Interpolate"),
    }
)
_BETWEEN = frozenset(
    {
        *("Add", "Clamp", "Elu", "Gelu", "HSwish", "HSigmoid", "Mish", "Multiply", "PReLU", "ReLU", "Sigmoid"),
        *("Swish", "Tanh", "Subtract", "Divide"),
    }
)


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
    type_ = _type(limits, levels)
    if type_ is None:
        return [_real(node, limits, levels)]
    low, high = (np.float32(each.reshape(-1)[0]) for each in limits[:2])
    if isinstance(value, Scaled):
        low, high = np.float32(low / value.scale), np.float32(high / value.scale)
    x, steps = value.expr if isinstance(value, Scaled) else node.real(0), Steps.of(low, high, levels)
    is_sum = isinstance(value, Scaled)
    is_post = value.by_convolution if is_sum else _is_post_operation(node)
    scaled = _scaled(node, x, steps, fused=is_post or is_sum, divides=is_post)
    whole = QuantizedType("uint8", (1.0,), (0,), storage_min=0, storage_max=levels - 1)
    made = node.emit(ops.quantize(scaled, whole), "stored")
    return [Stored(made, type_, (x, steps) if is_post and not is_sum else None)]


def _scaled(node: Node, x: relax.Expr, steps: Steps, *, fused: bool, divides: bool) -> relax.Expr:
    """Returns real numbers of steps. As a post-operation of another layer, they are computed by a fused multiply-add. A
    convolution or product divides by the scale instead if the shift is 0 (`appendLinear` in
    src/plugins/intel_cpu/src/dnnl_postops_composer.cpp). Otherwise, each operator rounds (`FakeQuantizeDecomposition`
    in src/common/snippets/src/pass/fq_decomposition.cpp).
    """
    factor, shift = (relax.const(each, "float32") for each in (steps.factor, steps.shift))
    if divides and steps.shift == 0:
        factor = relax.const(np.float32(1) / (np.float32(1) / steps.factor), "float32")
        return node.emit(relax.op.multiply(x, factor), "steps")
    if fused:
        return node.emit(ops.real_fma(x, factor, shift), "steps")
    return node.emit(relax.op.add(node.emit(relax.op.multiply(x, factor), "steps"), shift), "moved")


def _is_post_operation(node: Node) -> bool:
    """Returns true if another layer computes the FakeQuantize with its own result: a convolution, a product or a
    pooling, directly or after a bias and activations.
    """
    layer = node.layer
    for _ in range(_MOST_STEPS):
        layer = node.state.layers[layer.inputs[0][0]]
        if layer.type in _FUSING:
            return True
        if not layer.inputs or layer.type not in _BETWEEN:
            return False
    return False


def _type(limits: list[Array], levels: int) -> QuantizedType | None:
    """Returns the type of the stored values, or None if a range is not a grid that contains zero."""
    if levels > _MOST_LEVELS or any(each.size != 1 for each in limits):
        return None
    low, high = (float(each.reshape(-1)[0]) for each in limits[2:])
    if not low < high:
        return None
    step = (high - low) / (levels - 1)
    point = round(-low / step)
    if abs(-low / step - point) > _FRACTION or not 0 <= point <= levels - 1:
        return None
    return QuantizedType("uint8", (step,), (point,), storage_min=0, storage_max=levels - 1)


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
        return np.asarray(steps * scale + out_low, np.float32)
    offset = levels // 2  # int8 for symmetric ranges: 127 of 255 levels, 128 of 256
    if np.all(whole == offset):
        return Compressed(np.asarray(steps - offset, np.int8), real.shape, np.asarray(scale, np.float32), None)
    if np.all((whole >= 0) & (whole < levels)):
        return Compressed(steps.astype(np.uint8), real.shape, scale.astype(np.float32), whole.astype(np.uint8))
    return np.asarray(steps * scale + out_low, np.float32)


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
