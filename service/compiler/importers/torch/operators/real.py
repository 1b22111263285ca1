"""Operators on real values. Such operators are between the conversions of an exported program, or after the quantized
part of a model.

Operators that round once are float32, as in PyTorch. Functions are float32, too, but differ from PyTorch's by a few
units in the last place (`importers/real.py`). Sums of pixels are computed in float64 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers import real
from service.compiler.importers.builder import pooling as builder
from service.compiler.importers.real import Real
from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.operators import dilating, pooling
from service.compiler.importers.torch.operators.comparing import promoted
from service.compiler.importers.torch.tensors import Tensor
from service.compiler.importers.torch.values import Value
from service.compiler.qnn.graph import shape_of

INTEGERS = ("bool", "int32", "int64")
Binary = Callable[[relax.Expr, relax.Expr], relax.Call]


def _binary(operator: Binary) -> Callable[..., Value]:
    def convert(node: Node, a: Any, b: Any, alpha: Any = 1, *, rounding_mode: Any = None) -> Value:
        if not _are_real(a, b) and operator is not relax.op.divide:
            return node.value(operator(*promoted(node, a, b)), None)
        second = operand(node, b)
        if alpha != 1:  # PyTorch multiplies and adds in one step on some CPUs, and in two on others
            second = node.emit(relax.op.multiply(second, _number(node.real(alpha))), "scaled")
        quotient = operator(operand(node, a), second)
        if rounding_mode is None:
            return node.value(quotient, None)
        node.require(rounding_mode in ("floor", "trunc"), "has an unknown rounding mode")
        rounding = relax.op.floor if rounding_mode == "floor" else relax.op.trunc
        return node.value(rounding(node.emit(quotient, "quotient")), None)

    return convert


def _are_real(*values: Any) -> bool:
    """Returns false if the operands are integers, or integers and numbers that are not real."""
    tensors = [each for each in values if isinstance(each, Value | Tensor)]
    return not tensors or any(_is_real(each) for each in values)


def _is_real(value: Any) -> bool:
    if isinstance(value, Value):
        return value.quantized is not None or value.dtype not in INTEGERS
    return value.data.dtype.kind == "f" if isinstance(value, Tensor) else isinstance(value, float)


def _rsub(node: Node, input: Any, other: Any, alpha: Any = 1) -> Value:
    return _binary(relax.op.subtract)(node, other, input, alpha)


def operand(node: Node, value: Any) -> relax.Expr:
    """Returns a tensor of real values, computed or constant, or a number. A constant without axes determines an
    operator's dtype in the same way as a number.
    """
    if isinstance(value, Tensor) and value.quantization is None:
        if value.data.dtype == np.float32:
            return relax.const(np.ascontiguousarray(value.data))
        value = node.real(value) if value.data.ndim == 0 else value
    if isinstance(value, int | float):
        return _number(node.real(value))
    x = node.tensor(value)
    if x.quantized is None and x.dtype in INTEGERS:
        return node.emit(relax.op.astype(x.expr, "float32"), "real")
    return node.real_tensor(x).expr


def _number(value: float, dtype: str = "float32") -> relax.Expr:
    with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite, as in PyTorch
        return relax.const(np.array(value, dtype), dtype)


def _between(node: Node, x: relax.Expr, low: float, high: float) -> relax.Expr:
    for bound, limit in ((low, relax.op.maximum), (high, relax.op.minimum)):
        if not math.isinf(bound):
            x = node.emit(limit(x, _number(bound)))
    return x


def _clamp(node: Node, input: Any, min: Any = None, max: Any = None) -> Value:
    low, high = (-math.inf if min is None else node.real(min)), (math.inf if max is None else node.real(max))
    return node.value(_between(node, node.real_tensor(input).expr, low, high), None)


def _hardtanh(node: Node, input: Any, min_val: Any = -1.0, max_val: Any = 1.0) -> Value:
    return _clamp(node, input, min_val, max_val)


def _relu6(node: Node, input: Any) -> Value:
    return _clamp(node, input, 0.0, 6.0)


def _wide(of: Callable[..., relax.Expr]) -> Callable[..., Value]:
    """Returns the rule that computes `of(node, x, …)` in float64 and rounds the result."""

    def convert(node: Node, input: Any, *arguments: Any, **named: Any) -> Value:
        x = node.emit(relax.op.astype(node.real_tensor(input).expr, "float64"), "wide")
        return node.value(relax.op.astype(node.emit(of(node, x, *arguments, **named), "wide"), "float32"), None)

    return convert


def function(of: real.Function) -> Callable[..., Value]:
    """Returns the rule of a function of each value."""

    def convert(node: Node, input: Any) -> Value:
        return node.value(of(Real(node.emit, operand(node, input))), None)

    return convert


def _softmax(node: Node, input: Any, dim: Any, dtype: Any = None) -> Value:
    if dtype not in (None, "float32"):
        node.unsupported(f"has a result of {dtype}, not float32")
    x = node.real_tensor(input).expr
    return node.value(real.softmax(Real(node.emit, x), node.axis(dim, len(x.ty.shape))), None)


def _mean(node: Node, input: Any, dim: Any = None, keepdim: Any = False, *, dtype: Any = None) -> Value:
    x = node.real_tensor(input).expr
    rank = len(x.ty.shape)
    axes = node.reduced_axes(dim, rank)
    node.require(bool(axes), "is a mean without dimensions")
    return node.value(Real(node.emit, x).mean(x, axes, keepdims=node.flag(keepdim)), None)


def _adaptive_avg_pool2d(node: Node, x: relax.Expr, output_size: Any) -> relax.Expr:
    apart, axes, keepdims = pooling.cells(node, tuple(int(size) for size in x.ty.shape), output_size)
    windows = x if apart is None else node.emit(relax.op.reshape(x, apart), "windows")
    return _averaged(node, windows, axes, keepdims)


def _avg_pool2d(node: Node, input: Any, *window: Any, **named: Any) -> Value:
    """Converts average pooling. Elements that `ceil_mode` adds beyond the padding never count."""
    x, pool = node.real_tensor(input).expr, pooling.Pool.of(node, *window, **named)
    counted = pool.around * 2 if pool.counts_padding else builder.NO_SIDES
    return node.value(builder.average(Real(node.emit, x), _windows(node, x, pool), counted), None)


def _max_pool2d(
    node: Node,
    input: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: Any = False,
) -> Value:
    if node.pair(dilation, 1) != (1, 1):
        return dilating.max_pool2d(node, input, kernel_size, stride, padding, dilation, ceil_mode)
    x = node.real_tensor(input).expr
    found = _windows(node, x, pooling.Pool.of(node, kernel_size, stride, padding, ceil_mode))
    return node.value(builder.largest(Real(node.emit, x), found), None)


def _windows(node: Node, x: relax.Expr, pool: pooling.Pool) -> builder.Windows:
    shape = shape_of(x)
    if len(shape) != 4:
        node.unsupported(f"on a tensor with {len(shape)} dimensions, not 4")
    builder.check_places(node, math.prod(pool.window))
    return pool.windows(node, shape)


def _averaged(node: Node, x: relax.Expr, axes: list[int], keepdims: bool) -> relax.Expr:
    node.require(bool(axes), "is a mean without dimensions")
    count = math.prod(int(x.ty.shape[axis]) for axis in axes)
    total = node.emit(relax.op.sum(x, axes, keepdims=keepdims), "total")
    return relax.op.divide(total, _number(float(count), "float64"))


def _cat(node: Node, tensors: Any, dim: Any = 0) -> Value:
    parts = [node.real_tensor(part) for part in node.parts(tensors)]
    return node.value(relax.op.concat([part.expr for part in parts], node.axis(dim, len(parts[0].shape))), None)


_RELU = function(lambda made: relax.op.nn.relu(made.x))
# These rules take precedence over an operator's other rule if none of its operands is quantized.
RULES: dict[str, Callable[..., Value]] = {
    "aten::adaptive_avg_pool2d": _wide(_adaptive_avg_pool2d),
    "aten::add": _binary(relax.op.add),
    "aten::add_": _binary(relax.op.add),
    "aten::avg_pool2d": _avg_pool2d,
    "aten::cat": _cat,
    "aten::clamp": _clamp,
    "aten::clamp_": _clamp,
    "aten::div": _binary(relax.op.divide),
    "aten::div_": _binary(relax.op.divide),
    "aten::hardsigmoid": function(real.hard_sigmoid),
    "aten::hardsigmoid_": function(real.hard_sigmoid),
    "aten::hardswish": function(real.hard_swish),
    "aten::hardswish_": function(real.hard_swish),
    "aten::hardtanh": _hardtanh,
    "aten::hardtanh_": _hardtanh,
    "aten::max_pool2d": _max_pool2d,
    "aten::mean": _mean,
    "aten::mul": _binary(relax.op.multiply),
    "aten::mul_": _binary(relax.op.multiply),
    "aten::relu": _RELU,
    "aten::relu_": _RELU,
    "aten::relu6": _relu6,
    "aten::relu6_": _relu6,
    "aten::sigmoid": function(real.logistic),
    "aten::sigmoid_": function(real.logistic),
    "aten::silu": function(real.silu),
    "aten::softmax": _softmax,
    "aten::rsub": _rsub,
    "aten::sub": _binary(relax.op.subtract),
    "aten::sub_": _binary(relax.op.subtract),
    "aten::tanh": function(real.of_float32("tanh")),
    "aten::tanh_": function(real.of_float32("tanh")),
}
