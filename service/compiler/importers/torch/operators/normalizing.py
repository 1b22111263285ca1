"""Normalizations, products and activations of stored values that ATen computes in float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers import real
from service.compiler.importers.real import Real
from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.operators import layers, steps
from service.compiler.importers.torch.operators.activations import slopes
from service.compiler.importers.torch.tensors import Tensor
from service.compiler.importers.torch.values import Value
from service.compiler.qnn import ops
from service.compiler.qnn.types import QuantizedType


def _batch_norm(*, relu: bool) -> Callable[..., Value]:
    def convert(
        node: Node,
        qx: Any,
        weight: Any,
        bias: Any,
        mean: Any,
        var: Any,
        eps: Any,
        output_scale: Any,
        output_zero_point: Any,
    ) -> Value:
        """Converts x * alpha + beta for each channel, in steps of the result (`compute_fused_params` in
        qbatch_norm.cpp).
        """
        x, in_type = node.activation(qx)
        out_type = node.per_tensor(in_type.storage, output_scale, output_zero_point)
        node.require(len(x.shape) >= 2, f"has an input of shape {list(x.shape)}, not [N, C, …]")
        rows = [
            _row(node, each, x.shape[1], default)
            for each, default in zip((weight, bias, mean, var), (1, 0, 0, 1), strict=True)
        ]
        scale, move, centre, variance = rows
        one = np.float32(1)
        with np.errstate(all="ignore"):
            inverse = (one / np.sqrt(variance + np.float32(node.real(eps)))).astype(np.float32)
            ratio = in_type.scale / out_type.scale
            alpha = ((inverse * scale).astype(np.float64) * ratio).astype(np.float32)
            beta = ((move - centre * inverse * scale).astype(np.float64) / out_type.scale).astype(np.float32)
        ones = [1] * (len(x.shape) - 2)
        factors, addends = (relax.const(each.reshape(-1, *ones)) for each in (alpha, beta))
        made = node.emit(ops.real_fma(steps.centred(node, x, in_type), factors, addends), "steps")
        if relu:
            made = node.emit(relax.op.nn.relu(made), "steps")
        return steps.stored(node, made, out_type)

    return convert


def _row(node: Node, value: Any, size: int, default: float) -> Any:
    if value is None:
        return np.full(size, default, np.float32)
    if not isinstance(value, Tensor) or value.quantization is not None:
        node.unsupported("computes its parameters at run time, but they must be constant")
    node.require(value.data.shape == (size,), f"has parameters of shape {list(value.data.shape)} for {size} channels")
    return value.data.astype(np.float32)


def _of_real(make: Callable[..., Value]) -> Callable[..., Value]:
    """Returns the rule that dequantizes its operand, calls `make(node, real, …)`, and quantizes the result to the scale
    and zero point that come last.
    """

    def convert(node: Node, input: Any, *arguments: Any) -> Value:
        x, in_type = node.activation(input)
        node.require(len(arguments) >= 2, "has no scale for its result")
        out_type = node.per_tensor(in_type.storage, *arguments[-2:])
        made = make(node, node.value(ops.dequantize(x.expr, in_type), None), *arguments[:-2])
        return node.value(ops.quantize(made.expr, out_type), out_type)

    return convert


def _group_norm(node: Node, x: Value, num_groups: Any, weight: Any, bias: Any, eps: Any) -> Value:
    return layers.group_norm(node, x, num_groups, weight, bias, eps)


def _instance_norm(node: Node, x: Value, weight: Any, bias: Any, eps: Any) -> Value:
    return layers.group_norm(node, x, x.shape[1], weight, bias, eps)


def _softmax(node: Node, x: Value, dim: Any) -> Value:
    return node.value(real.softmax(Real(node.emit, x.expr), node.axis(dim, len(x.shape))), None)


def _matmul(node: Node, qa: Any, qb: Any, scale: Any, zero_point: Any) -> Value:
    (lhs, lhs_type), (rhs, rhs_type) = node.activation(qa), node.activation(qb)
    out_type = node.per_tensor(lhs_type.storage, scale, zero_point)
    reals = [node.emit(ops.dequantize(x.expr, of)) for x, of in ((lhs, lhs_type), (rhs, rhs_type))]
    product = node.emit(ops.real_matmul(*reals), "product")
    return node.value(ops.quantize(product, out_type), out_type)


def _prelu(node: Node, qx: Any, weight: Any, output_scale: Any, output_zero_point: Any) -> Value:
    """Converts x times 1, or times the slope of its channel if x is not positive (`qprelu_out_kernel`).

    PyTorch stores the factor 1 in the type of the slopes. If that type cannot represent 1, as if all slopes are 0.25
    and fill the range of their type, positive values are multiplied by the largest representable number.
    """
    x, in_type = node.activation(qx)
    out_type = node.per_tensor(in_type.storage, output_scale, output_zero_point)
    slope, of = _slopes(node, weight, len(x.shape))
    one = min(max(round(1 / of.scale) + of.zero_point, of.min), of.max) - of.zero_point
    made = Real(node.emit, steps.centred(node, x, in_type))
    below = made.apply(relax.op.multiply, made.x, slope)
    above = made.apply(relax.op.multiply, made.x, float(one))
    product = made.apply(relax.op.where, made.apply(relax.op.greater, made.x, 0.0), above, below)
    factor = np.float32(in_type.scale) * np.float32(of.scale) * (np.float32(1) / np.float32(out_type.scale))
    return steps.stored(node, made.apply(relax.op.multiply, product, float(factor)), out_type)


def _slopes(node: Node, weight: Any, rank: int) -> tuple[relax.Expr, QuantizedType]:
    """Returns the stored slopes minus their zero point, as float32, and their type."""
    if not isinstance(weight, Tensor):
        given, computed = node.activation(weight)
        return steps.centred(node, slopes(node, given, rank), computed), computed
    if weight.quantization is None or weight.quantization.axis is not None:
        node.unsupported("has slopes that are not quantized, or are quantized one by one")
    of = node.typed(weight.data.dtype.name, weight.quantization)
    data = weight.data.astype(np.float32) - np.float32(of.zero_point)
    return relax.const(data.reshape(-1, *[1] * (rank - 2)) if data.size > 1 else data.reshape(1)), of


def _of_each(function: Callable[..., Any]) -> Callable[..., Value]:
    """Returns the rule of a function of each value, as a table."""

    def convert(node: Node, input: Any, *arguments: Any, **named: Any) -> Value:
        x, in_type = node.activation(input)
        values = np.arange(in_type.min, in_type.max + 1)
        exact = (values - in_type.zero_point).astype(np.float32) * np.float32(in_type.scale)
        made, out_type = function(node, in_type, exact, *arguments, **named)
        out_type = out_type or replace(in_type)
        with np.errstate(all="ignore"):
            scaled = made.astype(np.float32) * (np.float32(1) / np.float32(out_type.scale))
        rounded = np.rint(np.clip(scaled, -(2.0**30), 2.0**30)).astype(np.int64) + out_type.zero_point
        stored = np.clip(rounded, out_type.min, out_type.max)
        return node.value(ops.table(x.expr, in_type, out_type, stored.tolist()), out_type)

    return convert


def _threshold(node: Node, _: QuantizedType, x: Any, threshold: Any, value: Any) -> Any:
    return np.where(x > np.float32(node.real(threshold)), x, np.float32(node.real(value))), None


def _celu(node: Node, in_type: QuantizedType, x: Any, scale: Any, zero_point: Any, alpha: Any = 1) -> Any:
    slope = node.real(alpha)
    node.require(slope != 0, "divides by an alpha of 0")
    below = slope * np.expm1(np.minimum(x.astype(np.float64), 0) / slope)
    return np.where(x > 0, x, below), node.per_tensor(in_type.storage, scale, zero_point)


def _gelu(node: Node, _: QuantizedType, x: Any, *, approximate: Any = "none") -> Any:
    wide = x.astype(np.float64)
    if approximate == "tanh":
        inner = np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)
        return wide / 2 * (1 + np.tanh(inner)), None
    return wide / 2 * (1 + np.array([math.erf(each / math.sqrt(2)) for each in wide])), None


_BATCH_NORMS = ("batch_norm", "batch_norm1d", "batch_norm2d", "batch_norm3d")
RULES: dict[str, Callable[..., Value]] = {
    **{f"quantized::{name}": _batch_norm(relu=False) for name in _BATCH_NORMS},
    **{f"quantized::{name}_relu": _batch_norm(relu=True) for name in _BATCH_NORMS},
    "aten::gelu": _of_each(_gelu),
    "aten::threshold": _of_each(_threshold),
    "quantized::celu": _of_each(_celu),
    "quantized::group_norm": _of_real(_group_norm),
    "quantized::instance_norm": _of_real(_instance_norm),
    "quantized::matmul": _matmul,
    "quantized::prelu": _prelu,
    "quantized::softmax": _of_real(_softmax),
    "quantized::threshold": _of_each(_threshold),
}
