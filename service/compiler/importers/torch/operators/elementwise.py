"""Elementwise arithmetic, and activations that clamp."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.tensors import Tensor
from service.compiler.importers.torch.values import Value
from service.compiler.qnn import ops
from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType

Binary = Callable[[relax.Expr, relax.Expr, QuantizedType, QuantizedType, QuantizedType], relax.Call]
OfNumber = Callable[[Node, Any, float, bool], Value]
Stored = npt.NDArray[np.int64]


def _binary(operator: Binary, of_number: OfNumber, *, relu: bool = False) -> Callable[..., Value]:
    """Returns the rule of `quantized::add` or `quantized::mul`. The operands are two tensors; or a tensor and a number,
    in either order. With a number, the type of the result is computed.
    """

    def convert(node: Node, qa: Any, qb: Any, scale: Any = None, zero_point: Any = None) -> Value:
        if _is_number(qa) or _is_number(qb):
            if scale is not None:
                node.unsupported("has a number as an operand, and a scale for the result")
            tensor, number = (qb, qa) if _is_number(qa) else (qa, qb)
            return of_number(node, tensor, node.real(number), relu)
        (lhs, lhs_type), (rhs, rhs_type) = node.activation(qa), node.activation(qb)
        if scale is None or zero_point is None:
            node.unsupported("adds or multiplies two tensors without a scale for the result")
        if lhs_type.storage != rhs_type.storage:
            node.unsupported("has operands of different storage types")
        out_type = node.per_tensor(lhs_type.storage, scale, zero_point)
        out_type = _bounded(node, out_type, out_type.zero_point) if relu else out_type
        return node.value(operator(lhs.expr, rhs.expr, lhs_type, rhs_type, out_type), out_type)

    return convert


def _of_number(of_number: OfNumber, *, relu: bool = False) -> Callable[..., Value]:
    def convert(node: Node, qa: Any, b: Any) -> Value:
        return of_number(node, qa, node.real(b), relu)

    return convert


def _is_number(value: Any) -> bool:
    is_constant = isinstance(value, Tensor) and value.quantization is None and value.data.size == 1
    return is_constant or (isinstance(value, int | float) and not isinstance(value, bool))


def _times_number(node: Node, value: Any, number: float, relu: bool) -> Value:
    """Converts `_mul_scalar_out` (aten/src/ATen/native/quantized/cpu/BinaryOps.cpp): stored values stay, and their
    scale is multiplied. A negative number also mirrors the stored values within their range. Zero sets all of them to 0
    and the scale to 1.
    """
    x, in_type = node.activation(value)
    low, high = STORAGE_RANGES[in_type.storage]
    stored = np.arange(low, high + 1)
    scale, point = _exact_scale(x, in_type) * abs(number), in_type.zero_point
    if number == 0:
        made, scale, point = np.zeros_like(stored), 1.0, 0
    elif number < 0:
        made, point = low + high - stored, low + high - in_type.zero_point
    else:
        made = stored
    made = np.maximum(made, point) if relu and number != 0 else made
    return _looked_up(node, x, in_type, made, scale, point)


def _plus_number(node: Node, value: Any, number: float, relu: bool) -> Value:
    """Converts `_add_scalar_out` (BinaryOps.cpp): the number, in steps, shifts the zero point. If the zero point would
    leave the storage range, it stays at the end of the range, and the scale increases (`qadd_scalar_kernel`,
    QuantizedOpKernels.cpp).
    """
    x, in_type = node.activation(value)
    low, high = STORAGE_RANGES[in_type.storage]
    stored = np.arange(low, high + 1)
    own_scale = _exact_scale(x, in_type)
    steps = int(np.rint(np.clip(number / own_scale, -(2.0**31), 2.0**31)))
    moved = in_type.zero_point - steps
    if low <= moved <= high:
        made, scale, point = stored, own_scale, moved
    else:
        reach, point = (high - moved, low) if moved < low else (moved - low, high)
        scale = reach / (high - low) * own_scale
        factor = np.float32(in_type.scale) * (np.float32(1) / np.float32(scale))
        real = (stored - in_type.zero_point + steps).astype(np.float32) * factor
        made = np.clip(np.rint(real).astype(np.int64) + point, low, high)
    made = np.maximum(made, point) if relu else made
    return _looked_up(node, x, in_type, made, scale, point)


def _exact_scale(x: Value, quantized: QuantizedType) -> float:
    return quantized.scale if x.exact_scale is None else x.exact_scale


def _looked_up(node: Node, x: Value, in_type: QuantizedType, stored: Stored, scale: float, point: int) -> Value:
    """Looks up each value of `x`, which has 256 possible values, in `stored`."""
    out_type = node.per_tensor(in_type.storage, scale, point)
    return Value(node.emit(ops.table(x.expr, in_type, out_type, stored.tolist())), out_type, scale)


def _clamped(node: Node, value: Any, low: float | None, high: float | None) -> Value:
    """Clamps stored values to the quantized bounds, as ATen does (`qrelu_kernel`, `qclamp_kernel`)."""
    x, in_type = node.activation(value)
    unbounded = -math.inf if low is None else low, math.inf if high is None else high
    out_type = bounded(node, in_type, *unbounded)
    if out_type == in_type:
        return x
    return Value(node.emit(ops.requantize(x.expr, in_type, out_type)), out_type, x.exact_scale)


def bounded(node: Node, quantized: QuantizedType, low: float, high: float) -> QuantizedType:
    """Returns `quantized` with real bounds as its storage bounds. The bounds may be infinite."""
    stored = [None if math.isinf(bound) else _quantized(bound, quantized) for bound in (low, high)]
    return _bounded(node, quantized, *stored)


def _quantized(real: float, quantized: QuantizedType) -> int:
    """Returns the result of `quantize_val` (AffineQuantizerBase.cpp) before saturation. `quantize_val` multiplies by
    the float32 reciprocal and rounds halves to even.
    """
    with np.errstate(over="ignore"):
        ratio = np.float32(real) * (np.float32(1) / np.float32(quantized.scale))
    return quantized.zero_point + int(np.rint(np.clip(ratio, -(2.0**31), 2.0**31)))


def _bounded(node: Node, quantized: QuantizedType, low: int | None, high: int | None = None) -> QuantizedType:
    least = quantized.min if low is None else max(low, quantized.min)
    most = quantized.max if high is None else min(high, quantized.max)
    if least >= most:  # a type has at least two values (as in MLIR)
        node.unsupported(f"has an output that can only be {least}")
    return replace(quantized, storage_min=least, storage_max=most)


def _relu(node: Node, input: Any) -> Value:
    return _clamped(node, input, 0.0, None)


def _relu6(node: Node, input: Any, inplace: Any = False) -> Value:
    return _clamped(node, input, 0.0, 6.0)


def _hardtanh(node: Node, input: Any, min_val: Any = -1.0, max_val: Any = 1.0) -> Value:
    return _clamped(node, input, node.real(min_val), node.real(max_val))


def _clamp(node: Node, input: Any, min: Any = None, max: Any = None) -> Value:
    return _clamped(node, input, None if min is None else node.real(min), None if max is None else node.real(max))


RULES = {
    "quantized::add": _binary(ops.add, _plus_number),
    "quantized::add_relu": _binary(ops.add, _plus_number, relu=True),
    "quantized::add_scalar": _of_number(_plus_number),
    "quantized::add_scalar_relu": _of_number(_plus_number, relu=True),
    "quantized::mul": _binary(ops.mul, _times_number),
    "quantized::mul_relu": _binary(ops.mul, _times_number, relu=True),
    "quantized::mul_scalar": _of_number(_times_number),
    "quantized::mul_scalar_relu": _of_number(_times_number, relu=True),
    "quantized::relu6": _relu6,
    "aten::relu": _relu,
    "aten::relu_": _relu,
    "aten::relu6": _relu6,
    "aten::hardtanh": _hardtanh,
    "aten::hardtanh_": _hardtanh,
    "aten::clamp": _clamp,
}
