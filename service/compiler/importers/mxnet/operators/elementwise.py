"""Arithmetic and functions of each float32 value, which MXNet computes between quantized layers.

Arithmetic rounds once and equals MXNet's bit for bit. Functions differ from MXNet's by at most a few units in the last
place, as for every other format (`importers/real.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from service.compiler.importers.mxnet.attributes import Attributes
from service.compiler.importers.mxnet.node import Node, Value

Operand = Any  # an expression, or an array of known elements
Function = Callable[[Node, Operand, Attributes], Operand]
Convert = Callable[[Node], list[Value]]

_SLOPE, _LOWER, _UPPER = 0.25, 0.125, 0.334  # defaults of LeakyReLU


def of_numbers(op_type: str, *, swapped: bool = False) -> Convert:
    """Returns the rule of an operator on a tensor and a number, which is an attribute."""

    def convert(node: Node) -> list[Value]:
        number = np.float32(node.attributes.number("scalar", 1.0))
        operands = (node.real(0), np.array(number))
        return node.standard(op_type, *(operands[::-1] if swapped else operands))

    return convert


def of_tensors(op_type: str) -> Convert:
    """Returns the rule of an operator on two tensors, which broadcast."""

    def convert(node: Node) -> list[Value]:
        node.count(2)
        return node.standard(op_type, node.real(0), node.real(1))

    return convert


def compared(op_type: str, *, number: bool, negated: bool = False) -> Convert:
    """Returns the rule of a comparison, whose results are 0 and 1 in float32."""

    def convert(node: Node) -> list[Value]:
        other = np.array(node.attributes.number("scalar", 1.0), np.float32) if number else node.real(1)
        made = node.step(op_type, node.real(0), other)
        return node.standard("Cast", node.step("Not", made) if negated else made, to=1)

    return convert


def total(node: Node) -> list[Value]:
    """`add_n`: the sum of any number of tensors, from left to right."""
    return node.standard("Sum", *(node.real(index) for index in range(len(node.node.inputs))))


def function(name: str) -> Convert:
    """Returns the rule of a function of each element."""

    def convert(node: Node) -> list[Value]:
        node.count(1)
        return node.outputs_of(FUNCTIONS[name](node, node.real(0), node.attributes))

    return convert


def leaky_relu(node: Node) -> list[Value]:
    """`LeakyReLU` (src/operator/leaky_relu-inl.h). `prelu` has one slope, or one for each channel."""
    if node.attributes.text("act_type", "leaky") != "prelu":
        return node.outputs_of(leaky(node, node.real(0), node.attributes))
    x = node.tensor(0, "float32")
    slopes = node.array(1, "float32", 1)
    fits = len(slopes) in (1, x.shape[1] if len(x.shape) > 1 else x.shape[0])
    node.require(fits, f"has {len(slopes)} slopes, which do not fit the shape {list(x.shape)}")
    row = slopes.reshape(-1, *[1] * (len(x.shape) - 2)) if len(slopes) > 1 else slopes
    return node.standard("PRelu", x.expr, row)


def leaky(node: Node, x: Operand, attributes: Attributes) -> Operand:
    """Applies a `LeakyReLU` that has no further input: a node, or an activation that is fused into a layer."""
    kind = node.choice("act_type", "leaky", "leaky", "elu", "selu", "gelu", "rrelu", of=attributes)
    slope = attributes.number("slope", _SLOPE)
    if kind == "rrelu":  # at inference, the slope is the middle of its range
        slope = (attributes.number("lower_bound", _LOWER) + attributes.number("upper_bound", _UPPER)) / 2
    if kind in ("leaky", "rrelu"):
        return node.step("LeakyRelu", x, alpha=slope)
    return node.step("Elu", x, alpha=slope) if kind == "elu" else node.step(kind.capitalize(), x)


def activation(node: Node, x: Operand, attributes: Attributes) -> Operand:
    """Applies an `Activation` (src/operator/nn/activation-inl.h): a node, or one that is fused into a layer."""
    return FUNCTIONS[node.choice("act_type", "", *_ACTIVATIONS, of=attributes)](node, x, attributes)


def clip(node: Node, x: Operand, attributes: Attributes) -> Operand:
    """Applies a `clip` (src/operator/tensor/matrix_op-inl.h)."""
    ends = [attributes.real(name) for name in ("a_min", "a_max")]
    node.require_supported(None not in ends, "has no bounds a_min and a_max")
    low, high = (np.array(end, np.float32) for end in ends)
    return node.step("Min", node.step("Max", x, low), high)


def _of(op_type: str) -> Function:
    return lambda node, x, _: node.step(op_type, x)


def _hard_sigmoid(node: Node, x: Operand, attributes: Attributes) -> Operand:
    return node.step("HardSigmoid", x, alpha=attributes.number("alpha", 0.2), beta=attributes.number("beta", 0.5))


def _round_away(node: Node, x: Operand, _: Attributes) -> Operand:
    """`round` rounds halves away from zero."""
    magnitude = node.step("Floor", node.step("Add", node.step("Abs", x), np.array(0.5, np.float32)))
    return node.step("Mul", node.step("Sign", x), magnitude)


def _truncated(node: Node, x: Operand, _: Attributes) -> Operand:
    return node.step("Mul", node.step("Sign", x), node.step("Floor", node.step("Abs", x)))


_ACTIVATIONS = ("relu", "sigmoid", "tanh", "softrelu", "softsign")
FUNCTIONS: Mapping[str, Function] = {
    "abs": _of("Abs"),
    "ceil": _of("Ceil"),
    "clip": clip,
    "cos": _of("Cos"),
    "div_sqrt_dim": lambda node, x, _: node.step("Div", x, np.array(math.sqrt(node.extents(x)[-1]), np.float32)),
    "erf": _of("Erf"),
    "exp": _of("Exp"),
    "fix": _truncated,
    "floor": _of("Floor"),
    "hard_sigmoid": _hard_sigmoid,
    "log": _of("Log"),
    "negative": _of("Neg"),
    "reciprocal": _of("Reciprocal"),
    "relu": _of("Relu"),
    "rint": _of("Round"),
    "round": _round_away,
    "rsqrt": lambda node, x, _: node.step("Reciprocal", node.step("Sqrt", x)),
    "sigmoid": _of("Sigmoid"),
    "sign": _of("Sign"),
    "sin": _of("Sin"),
    "softrelu": _of("Softplus"),
    "softsign": _of("Softsign"),
    "sqrt": _of("Sqrt"),
    "square": lambda node, x, _: node.step("Mul", x, x),
    "tanh": _of("Tanh"),
    "trunc": _truncated,
}
