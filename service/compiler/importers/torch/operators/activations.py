"""Activations of real values that PyTorch has beside the common ones. Functions that float32 does not define here are
computed in float64 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers import real
from service.compiler.importers.real import Real, Wide
from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.operators.movement import part_of
from service.compiler.importers.torch.operators.real import function, operand
from service.compiler.importers.torch.values import Value
from service.compiler.qnn.graph import shape_of

# aten/src/ATen/native/Activation.cpp, SELU_ALPHA and SELU_SCALE
_SELU = (1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


def _wide(node: Node, input: Any, of: real.WideFunction) -> Value:
    return node.value(real.in_float64(of)(Real(node.emit, operand(node, input))), None)


def _exponential(wide: Wide, x: relax.Expr) -> relax.Expr:
    """Returns exp(min(x, 0)) - 1."""
    return wide.apply(relax.op.subtract, wide.apply(relax.op.exp, wide.apply(relax.op.minimum, x, 0.0)), 1.0)


def _celu(node: Node, input: Any, alpha: Any = 1.0) -> Value:
    """Converts max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    slope = node.real(alpha)
    node.require(slope != 0, "divides by an alpha of 0")

    def of(wide: Wide) -> relax.Expr:
        below = wide.apply(relax.op.multiply, _exponential(wide, wide.apply(relax.op.divide, wide.x, slope)), slope)
        return wide.apply(relax.op.add, wide.apply(relax.op.maximum, wide.x, 0.0), below)

    return _wide(node, input, of)


def _selu(node: Node, input: Any) -> Value:
    alpha, scale = _SELU

    def of(wide: Wide) -> relax.Expr:
        below = wide.apply(relax.op.multiply, _exponential(wide, wide.x), alpha)
        whole = wide.apply(relax.op.add, wide.apply(relax.op.maximum, wide.x, 0.0), below)
        return wide.apply(relax.op.multiply, whole, scale)

    return _wide(node, input, of)


def _log_of_one_plus_exponential(wide: Wide, x: relax.Expr) -> relax.Expr:
    """Returns log(1 + exp(x)) as max(x, 0) + log(1 + exp(-abs(x))), which does not overflow."""
    small = wide.apply(relax.op.exp, wide.apply(relax.op.negative, wide.apply(relax.op.abs, x)))
    logarithm = wide.apply(relax.op.log, wide.apply(relax.op.add, small, 1.0))
    return wide.apply(relax.op.add, wide.apply(relax.op.maximum, x, 0.0), logarithm)


def _softplus(node: Node, input: Any, beta: Any = 1, threshold: Any = 20) -> Value:
    """Converts log(1 + exp(beta * x)) / beta, or x if beta * x exceeds the threshold."""
    steep, most = node.real(beta), node.real(threshold)
    node.require(steep != 0, "divides by a beta of 0")

    def of(wide: Wide) -> relax.Expr:
        scaled = wide.apply(relax.op.multiply, wide.x, steep)
        soft = wide.apply(relax.op.divide, _log_of_one_plus_exponential(wide, scaled), steep)
        return wide.apply(relax.op.where, wide.apply(relax.op.greater, scaled, most), wide.x, soft)

    return _wide(node, input, of)


def _mish(wide: Wide) -> relax.Expr:
    soft = _log_of_one_plus_exponential(wide, wide.x)
    return wide.apply(relax.op.multiply, wide.x, wide.apply(relax.op.tanh, soft))


def _log_sigmoid(wide: Wide) -> relax.Expr:
    opposite = wide.apply(relax.op.negative, wide.x)
    return wide.apply(relax.op.negative, _log_of_one_plus_exponential(wide, opposite))


def _threshold(node: Node, input: Any, threshold: Any, value: Any) -> Value:
    """Converts x if it exceeds the threshold, and otherwise `value`."""
    made, least = Real(node.emit, operand(node, input)), node.real(threshold)
    return node.value(
        made.call(relax.op.where, made.apply(relax.op.less_equal, made.x, least), node.real(value), made.x), None
    )


def _hardshrink(node: Node, input: Any, lambd: Any = 0.5) -> Value:
    """Converts x if its magnitude exceeds the limit, and otherwise 0."""
    made, limit = Real(node.emit, operand(node, input)), node.real(lambd)
    inside = made.apply(relax.op.less_equal, made.apply(relax.op.abs, made.x), limit)
    return node.value(made.call(relax.op.where, inside, 0.0, made.x), None)


def _softshrink(node: Node, input: Any, lambd: Any = 0.5) -> Value:
    """Converts x moved towards 0 by the limit; values within the limit become 0."""
    made, limit = Real(node.emit, operand(node, input)), node.real(lambd)
    below = made.apply(relax.op.minimum, made.apply(relax.op.add, made.x, limit), 0.0)
    above = made.apply(relax.op.maximum, made.apply(relax.op.subtract, made.x, limit), 0.0)
    return node.value(made.call(relax.op.add, above, below), None)


def _glu(node: Node, input: Any, dim: Any = -1) -> Value:
    """Converts the first half of an axis times the logistic function of its second half."""
    x = node.real_tensor(input)
    axis = node.axis(dim, len(x.shape))
    size = x.shape[axis]
    node.require(size % 2 == 0, f"cannot halve the {size} elements of its axis {axis}")
    first, second = (part_of(node, x, axis, range(start, start + size // 2)).expr for start in (0, size // 2))
    gate = node.emit(real.logistic(Real(node.emit, second)), "gate")
    return node.value(relax.op.multiply(first, gate), None)


def _prelu(node: Node, input: Any, weight: Any) -> Value:
    """Converts x, or x times a constant of its channel if x is negative."""
    x = operand(node, input)
    return node.value(real.sloped(Real(node.emit, x), operand(node, slopes(node, weight, len(shape_of(x))))), None)


def slopes(node: Node, weight: Any, rank: int) -> Value:
    """Returns one slope, or the slopes of all channels, shaped so that they broadcast along the second of `rank` axes.
    In a tensor with fewer axes, the slopes are along the last axis.
    """
    given = node.tensor(weight)
    count = math.prod(given.shape)
    shape = [count, *[1] * (rank - 2)] if count > 1 else [1]
    return node.value(relax.op.reshape(given.expr, shape), given.quantized)


def _log_softmax(node: Node, input: Any, dim: Any, dtype: Any = None) -> Value:
    x = node.real_tensor(input).expr
    made = real.softmax(Real(node.emit, x), node.axis(dim, len(shape_of(x))), logarithm=True)
    return node.value(made, None)


def _plain(make: Callable[[relax.Expr], relax.Call]) -> Callable[..., Value]:
    """Returns the rule of a function that rounds once."""
    return function(lambda made: make(made.x))


def _in_float64(of: real.WideFunction) -> Callable[..., Value]:
    return function(real.in_float64(of))


def _shifted_log(wide: Wide) -> relax.Expr:
    return wide.apply(relax.op.log, wide.apply(relax.op.add, wide.x, 1.0))


def _exponential_minus_one(wide: Wide) -> relax.Expr:
    return wide.apply(relax.op.subtract, wide.apply(relax.op.exp, wide.x), 1.0)


def _logarithm(base: float) -> real.WideFunction:
    return lambda wide: wide.apply(relax.op.divide, wide.apply(relax.op.log, wide.x), float(np.log(base)))


def _reciprocal(made: Real) -> relax.Call:
    return made.call(relax.op.divide, 1.0, made.x)


def _square(made: Real) -> relax.Call:
    return relax.op.multiply(made.x, made.x)


RULES: dict[str, Callable[..., Value]] = {
    "aten::abs": _plain(relax.op.abs),
    "aten::ceil": _plain(relax.op.ceil),
    "aten::celu": _celu,
    "aten::celu_": _celu,
    "aten::exp2": _in_float64(lambda wide: wide.apply(relax.op.power, relax.const(2.0, "float64"), wide.x)),
    "aten::expm1": _in_float64(_exponential_minus_one),
    "aten::floor": _plain(relax.op.floor),
    "aten::glu": _glu,
    "aten::hardshrink": _hardshrink,
    "aten::log10": _in_float64(_logarithm(10.0)),
    "aten::log1p": _in_float64(_shifted_log),
    "aten::log2": _in_float64(_logarithm(2.0)),
    "aten::log_sigmoid": _in_float64(_log_sigmoid),
    "aten::log_softmax": _log_softmax,
    "aten::mish": _in_float64(_mish),
    "aten::mish_": _in_float64(_mish),
    "aten::neg": _plain(relax.op.negative),
    "aten::prelu": _prelu,
    "aten::reciprocal": function(_reciprocal),
    "aten::round": _plain(relax.op.round),
    "aten::selu": _selu,
    "aten::selu_": _selu,
    "aten::sign": _plain(relax.op.sign),
    "aten::softplus": _softplus,
    "aten::softshrink": _softshrink,
    "aten::square": function(_square),
    "aten::tan": _in_float64(lambda wide: wide.apply(relax.op.tan, wide.x)),
    "aten::threshold": _threshold,
    "aten::threshold_": _threshold,
    "aten::trunc": _plain(relax.op.trunc),
}
