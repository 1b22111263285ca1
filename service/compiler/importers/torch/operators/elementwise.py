"""Arithmetic element by element, and activations that clamp."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.values import Value
from service.compiler.qnn import ops
from service.compiler.qnn.types import QuantizedType

Binary = Callable[[relax.Expr, relax.Expr, QuantizedType, QuantizedType, QuantizedType], relax.Call]


def _binary(operator: Binary, *, relu: bool = False) -> Callable[..., Value]:
    def convert(node: Node, qa: Any, qb: Any, scale: Any, zero_point: Any) -> Value:
        (lhs, lhs_type), (rhs, rhs_type) = node.activation(qa), node.activation(qb)
        if lhs_type.storage != rhs_type.storage:
            node.malformed("has operands of different storage")
        out_type = node.per_tensor(lhs_type.storage, scale, zero_point)
        out_type = _bounded(node, out_type, out_type.zero_point) if relu else out_type
        return node.value(operator(lhs.expr, rhs.expr, lhs_type, rhs_type, out_type), out_type)

    return convert


def _clamped(node: Node, value: Any, low: float | None, high: float | None) -> Value:
    """ATen clamps stored values between the quantized bounds (`qrelu_kernel`, `qclamp_kernel`)."""
    x, in_type = node.activation(value)
    unbounded = -math.inf if low is None else low, math.inf if high is None else high
    out_type = bounded(node, in_type, *unbounded)
    if out_type == in_type:
        return x
    return node.value(ops.requantize(x.expr, in_type, out_type), out_type)


def bounded(node: Node, quantized: QuantizedType, low: float, high: float) -> QuantizedType:
    """`quantized` with real bounds, which may be infinite."""
    stored = [None if math.isinf(bound) else _quantized(bound, quantized) for bound in (low, high)]
    return _bounded(node, quantized, *stored)


def _quantized(real: float, quantized: QuantizedType) -> int:
    """`quantize_val` (AffineQuantizerBase.cpp) before it saturates; with float32's reciprocal, halves to even."""
    with np.errstate(over="ignore"):
        ratio = np.float32(real) * (np.float32(1) / np.float32(quantized.scale))
    return quantized.zero_point + int(np.rint(np.clip(ratio, -(2.0**31), 2.0**31)))


def _bounded(node: Node, quantized: QuantizedType, low: int | None, high: int | None = None) -> QuantizedType:
    least = quantized.min if low is None else max(low, quantized.min)
    most = quantized.max if high is None else min(high, quantized.max)
    if least >= most:  # a type has at least two values (as in MLIR)
        node.unsupported(f"leaves its output only the value {least}")
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
    "quantized::add": _binary(ops.add),
    "quantized::add_relu": _binary(ops.add, relu=True),
    "quantized::mul": _binary(ops.mul),
    "quantized::mul_relu": _binary(ops.mul, relu=True),
    "quantized::relu6": _relu6,
    "aten::relu": _relu,
    "aten::relu_": _relu,
    "aten::relu6": _relu6,
    "aten::hardtanh": _hardtanh,
    "aten::hardtanh_": _hardtanh,
    "aten::clamp": _clamp,
}
