"""Functions of one value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.values import Value
from service.compiler.qnn import ops


def _applied(
    node: Node, function: str, value: Any, scale: Any = None, zero_point: Any = None, **attrs: float | bool
) -> Value:
    """Converts a function. Without a scale, the output has the operand's type."""
    x, in_type = node.activation(value)
    given = (in_type.scale, in_type.zero_point) if scale is None else (scale, zero_point)
    out_type = node.per_tensor(in_type.storage, *given)
    return node.value(ops.unary(function, x.expr, in_type, out_type, **attrs), out_type)


def _with_range(function: str, scale: float, zero_points: dict[str, int]) -> Callable[..., Value]:
    """Returns the rule of a function whose output type is fixed in ATen, because the range of the function is known."""

    def convert(node: Node, input: Any) -> Value:
        _, in_type = node.activation(input)
        return _applied(node, function, input, scale, zero_points[in_type.storage])

    return convert


def _sigmoid(node: Node, qx: Any, output_scale: Any, output_zero_point: Any) -> Value:
    return _applied(node, "logistic", qx, output_scale, output_zero_point)


def _hardswish(node: Node, input: Any, output_scale: Any = None, output_zero_point: Any = None) -> Value:
    return _applied(node, "hard_swish", input, output_scale, output_zero_point)


def _leaky_relu(node: Node, input: Any, negative_slope: Any = 0.01) -> Value:
    return _applied(node, "leaky_relu", input, alpha=node.real(negative_slope))


def _quantized_leaky_relu(
    node: Node, qx: Any, negative_slope: Any, inplace: Any, output_scale: Any, output_zero_point: Any
) -> Value:
    return _applied(node, "leaky_relu", qx, output_scale, output_zero_point, alpha=node.real(negative_slope))


def _elu(
    node: Node,
    qx: Any,
    output_scale: Any,
    output_zero_point: Any,
    alpha: Any = 1,
    scale: Any = 1,
    input_scale: Any = 1,
) -> Value:
    slopes = node.real(alpha), node.real(scale), node.real(input_scale)
    if slopes != (1.0, 1.0, 1.0):
        return _other_elu(node, qx, node.real(output_scale), output_zero_point, *slopes)
    return _applied(node, "elu", qx, output_scale, output_zero_point)


def _other_elu(
    node: Node, qx: Any, output_scale: float, output_zero_point: Any, alpha: float, scale: float, steep: float
) -> Value:
    """Converts x * scale, or (exp(x * steep) - 1) * alpha * scale if x is negative (`qelu_kernel`), as a table."""
    x, in_type = node.activation(qx)
    out_type = node.per_tensor(in_type.storage, output_scale, output_zero_point)
    values = (np.arange(in_type.min, in_type.max + 1) - in_type.zero_point).astype(np.float32)
    exact = (values * np.float32(in_type.scale)).astype(np.float64)
    below = np.expm1(np.minimum(exact, 0) * steep) * (alpha * scale)
    made = np.where(exact < 0, below, exact * scale).astype(np.float32)
    scaled = np.clip(made * (np.float32(1) / np.float32(out_type.scale)), -(2.0**30), 2.0**30)
    stored = np.clip(np.rint(scaled).astype(np.int64) + out_type.zero_point, out_type.min, out_type.max)
    return node.value(ops.table(x.expr, in_type, out_type, stored.tolist()), out_type)


RULES = {
    "aten::sigmoid": _with_range("logistic", 1 / 256, {"uint8": 0, "int8": -128}),
    "aten::tanh": _with_range("tanh", 2 / 256, {"uint8": 128, "int8": 0}),
    "aten::hardsigmoid": _with_range("hard_sigmoid", 1 / 256, {"uint8": 0, "int8": -128}),
    "aten::hardsigmoid_": _with_range("hard_sigmoid", 1 / 256, {"uint8": 0, "int8": -128}),
    "aten::hardswish": _hardswish,
    "aten::hardswish_": _hardswish,
    "aten::leaky_relu": _leaky_relu,
    "aten::leaky_relu_": _leaky_relu,
    "quantized::elu": _elu,
    "quantized::hardswish": _hardswish,
    "quantized::leaky_relu": _quantized_leaky_relu,
    "quantized::sigmoid": _sigmoid,
}
