"""Arithmetic, comparisons and functions of each value."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from tvm import relax

from service.compiler.importers.openvino.node import Node
from service.compiler.importers.openvino.operators import sums
from service.compiler.importers.openvino.values import Scaled, Stored, Value
from service.core.models.arrays import Array

Convert = Callable[[Node], list[Value]]


def plain(op_type: str, inputs: int) -> Convert:
    """Returns the rule of a layer that is ONNX's `op_type`."""

    def convert(node: Node) -> list[Value]:
        node.count(inputs)
        return node.standard(op_type, *(node.real(index) for index in range(inputs)))

    return convert


def relu(node: Node) -> list[Value]:
    """`ReLU`. Stored values stay stored: those below the zero point become the zero point."""
    x = node.value(0)
    if isinstance(x, Stored) and x.type.zero_point == x.type.min:
        return [x]
    if isinstance(x, Scaled):
        return [Scaled(node.emit(relax.op.nn.relu(x.expr)), x.scale, x.by_convolution)]
    return node.standard("Relu", node.real(0))


def maximum(op_type: str) -> Convert:
    def convert(node: Node) -> list[Value]:
        node.count(2)
        return node.standard(op_type, node.real(0), node.real(1))

    return convert


def squared_difference(node: Node) -> list[Value]:
    node.count(2)
    difference = node.step("Sub", node.real(0), node.real(1))
    return node.standard("Mul", difference, difference)


def modulo(*, floors: bool) -> Convert:
    """Returns the rule of `Mod`, whose result has the sign of the dividend, or of `FloorMod`."""

    def convert(node: Node) -> list[Value]:
        a, b = node.real(0), node.real(1)
        dtype = a.dtype.name if isinstance(a, np.ndarray) else str(a.ty.dtype)
        if dtype != "float32":
            return node.standard("Mod", a, b, fmod=0 if floors else 1)
        quotient = node.step("Div", a, b)
        if floors:
            whole = node.step("Floor", quotient)
        else:
            whole = node.step("Mul", node.step("Sign", quotient), node.step("Floor", node.step("Abs", quotient)))
        return node.standard("Sub", a, node.step("Mul", b, whole))

    return convert


def clamp(node: Node) -> list[Value]:
    node.count(1)
    low, high = (_number(node.attributes.number(name)) for name in ("min", "max"))
    return node.standard("Min", node.step("Max", node.real(0), low), high)


def elu(node: Node) -> list[Value]:
    return node.standard("Elu", node.real(0), alpha=node.attributes.number("alpha", 1.0))


def selu(node: Node) -> list[Value]:
    node.count(3)
    return node.standard("Selu", node.real(0), alpha=node.number(1), gamma=node.number(2))


def hard_sigmoid(node: Node) -> list[Value]:
    node.count(3)
    return node.standard("HardSigmoid", node.real(0), alpha=node.number(1), beta=node.number(2))


def h_sigmoid(node: Node) -> list[Value]:
    """`HSigmoid`: min(max(x + 3, 0), 6) / 6."""
    moved = node.step("Add", node.real(0), _number(3))
    return node.standard("Div", node.step("Min", node.step("Max", moved, _number(0)), _number(6)), _number(6))


def swish(node: Node) -> list[Value]:
    """`Swish`: x * sigmoid(beta * x)."""
    node.count(1, 2)
    x = node.real(0)
    beta = node.number(1) if node.input_count == 2 else 1.0
    scaled = x if beta == 1 else node.step("Mul", x, _number(beta))
    return node.standard("Mul", x, node.step("Sigmoid", scaled))


def gelu(node: Node) -> list[Value]:
    mode = node.attributes.text("approximation_mode", "ERF").upper()
    node.require(mode in ("ERF", "TANH"), f"has the unknown approximation_mode {mode[:20]!a}")
    return node.standard("Gelu", node.real(0), approximate="none" if mode == "ERF" else "tanh")


def prelu(node: Node) -> list[Value]:
    """`PReLU`: the slopes have one value, one for each channel, or broadcast to the input."""
    node.count(2)
    x, slopes = node.real(0), node.real(1)
    rank, channels = len(node.extents(x)), node.extents(slopes)
    if len(channels) == 1 and rank > 2 and channels != (1,):
        slopes = node.step("Reshape", slopes, np.array((-1, *[1] * (rank - 2)), np.int64))
    return node.standard("PRelu", x, slopes)


def round_(node: Node) -> list[Value]:
    mode = node.attributes.text("mode", "half_to_even").lower()
    if mode == "half_to_even":
        return node.standard("Round", node.real(0))
    node.require(mode == "half_away_from_zero", f"has the unknown mode {mode[:30]!a}")
    x = node.real(0)
    magnitude = node.step("Floor", node.step("Add", node.step("Abs", x), _number(0.5)))
    return node.standard("Mul", node.step("Sign", x), magnitude)


def not_equal(node: Node) -> list[Value]:
    node.count(2)
    return node.standard("Not", node.step("Equal", node.real(0), node.real(1)))


def is_finite(node: Node) -> list[Value]:
    x = node.real(0)
    return node.standard("Not", node.step("Or", node.step("IsNaN", x), node.step("IsInf", x)))


def is_infinite(node: Node) -> list[Value]:
    flags = {"detect_negative": "detect_negative", "detect_positive": "detect_positive"}
    return node.standard(
        "IsInf", node.real(0), **{ours: int(node.attributes.flag(each, True)) for ours, each in flags.items()}
    )


def select(node: Node) -> list[Value]:
    node.count(3)
    return node.standard("Where", *(node.real(index) for index in range(3)))


def _number(value: float) -> Array:
    return np.array(value, np.float32)


ELEMENTWISE: Mapping[str, Convert] = {
    **{name: plain(name, 1) for name in ("Abs", "Acos", "Asin", "Atan", "Cos", "Cosh", "Erf", "Exp", "Floor", "Log")},
    **{name: plain(name, 1) for name in ("Mish", "Sigmoid", "Sign", "Sin", "Sinh", "Sqrt", "Tan", "Tanh")},
    **{name: plain(name, 1) for name in ("Acosh", "Asinh", "Atanh", "IsNaN")},
    **{name: plain(name, 2) for name in ("Equal", "Greater", "Less")},
    "Add": sums.add,
    "Ceiling": plain("Ceil", 1),
    "Clamp": clamp,
    "Divide": plain("Div", 2),
    "Elu": elu,
    "FloorMod": modulo(floors=True),
    "Gelu": gelu,
    "GreaterEqual": plain("GreaterOrEqual", 2),
    "HSigmoid": h_sigmoid,
    "HSwish": plain("HardSwish", 1),
    "HardSigmoid": hard_sigmoid,
    "IsFinite": is_finite,
    "IsInf": is_infinite,
    "LessEqual": plain("LessOrEqual", 2),
    "LogicalAnd": plain("And", 2),
    "LogicalNot": plain("Not", 1),
    "LogicalOr": plain("Or", 2),
    "LogicalXor": plain("Xor", 2),
    "Maximum": maximum("Max"),
    "Minimum": maximum("Min"),
    "Mod": modulo(floors=False),
    "Negative": plain("Neg", 1),
    "NotEqual": not_equal,
    "PReLU": prelu,
    "Power": plain("Pow", 2),
    "PRelu": prelu,
    "ReLU": relu,
    "Round": round_,
    "Select": select,
    "Selu": selu,
    "SoftPlus": plain("Softplus", 1),
    "SoftSign": plain("Softsign", 1),
    "SquaredDifference": squared_difference,
    "Swish": swish,
}
