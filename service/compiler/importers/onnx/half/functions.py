"""Operators that ONNX defines by other operators. ONNX Runtime replaces such an operator by its definition if it has no
kernel for the operator's type (`InlineNodes` in core/framework/graph_partitioner.cc).

The definitions are those of onnx/defs. Their constants stay float32: ONNX Runtime folds the casts around them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from service.compiler.importers.onnx.model import Tensor
from service.compiler.importers.qdq import Operator


@dataclass
class Body:
    """The operators that replace `operator`, and the constants that they read."""

    operator: Operator
    operators: list[Operator] = field(default_factory=list)
    constants: dict[str, Tensor] = field(default_factory=dict)

    def node(self, op_type: str, *inputs: str, is_last: bool = False, **attributes: object) -> str:
        """Appends an operator and returns its output, which is the output of the replaced operator if `is_last`."""
        return self._append(op_type, inputs, attributes, is_last=is_last)

    def total(self, x: str, *, is_last: bool = False) -> str:
        """Appends a ReduceSum of `x`, with the axes and the attributes of the replaced operator."""
        inputs = (x, *self.operator.inputs[1:])
        return self._append("ReduceSum", inputs, self.operator.attributes, is_last=is_last)

    def _append(self, op_type: str, inputs: tuple[str, ...], attributes: Mapping[str, object], *, is_last: bool) -> str:
        output = self.operator.outputs[0] if is_last else self._name(f"{op_type}{len(self.operators)}")
        written = self.operator.written or self.operator.op_type
        self.operators.append(
            Operator(self.operator.index, op_type, inputs, (output,), attributes, self.operator.clamp, written)
        )
        return output

    def number(self, value: float) -> str:
        """Returns the name of a new float32 constant."""
        name = self._name(f"number{len(self.constants)}")
        self.constants[name] = Tensor(name, "float32", (), np.array(value, np.float32))
        return name

    def attribute(self, name: str, default: float) -> float:
        """Returns a number among the operator's attributes. The importer refuses attributes of other types later."""
        value = self.operator.attributes.get(name, default)
        return float(value) if isinstance(value, int | float) else default

    def _name(self, what: str) -> str:
        return f"{self.operator.outputs[0]}/{self.operator.op_type}/{what}"


def _softmax(body: Body) -> None:
    total, exponentials, _ = _shifted(body)
    body.node("Div", exponentials, total, is_last=True)


def _log_softmax(body: Body) -> None:
    total, _, shifted = _shifted(body)
    body.node("Sub", shifted, body.node("Log", total), is_last=True)


def _shifted(body: Body) -> tuple[str, str, str]:
    (x,) = body.operator.inputs
    axes = (body.operator.attributes.get("axis", -1),)
    shifted = body.node("Sub", x, body.node("ReduceMax", x, axes=axes, keepdims=1))
    exponentials = body.node("Exp", shifted)
    return body.node("ReduceSum", exponentials, axes=axes, keepdims=1), exponentials, shifted


def _gelu(body: Body) -> None:
    (x,) = body.operator.inputs
    half = body.node("Mul", body.number(0.5), x)
    if body.operator.attributes.get("approximate", "none") == "tanh":
        cube = body.node("Mul", body.number(0.044715), body.node("Pow", x, body.number(3)))
        slope = body.number(float(np.sqrt(np.float32(2 / np.pi))))
        inner = body.node("Tanh", body.node("Mul", slope, body.node("Sum", x, cube)))
    else:
        inner = body.node("Erf", body.node("Div", x, body.number(float(np.sqrt(np.float32(2))))))
    body.node("Mul", half, body.node("Sum", body.number(1), inner), is_last=True)


def _leaky_relu(body: Body) -> None:
    (x,) = body.operator.inputs
    _sloped(body, x, body.node("Mul", body.number(body.attribute("alpha", 0.01)), x))


def _prelu(body: Body) -> None:
    x, slope = body.operator.inputs
    _sloped(body, x, body.node("Mul", slope, x))


def _sloped(body: Body, x: str, below: str) -> None:
    body.node("Where", body.node("Less", x, body.number(0)), below, x, is_last=True)


def _swish(body: Body) -> None:
    (x,) = body.operator.inputs
    gate = body.node("Sigmoid", body.node("Mul", body.number(body.attribute("alpha", 1.0)), x))
    body.node("Mul", x, gate, is_last=True)


def _reduced_squares(body: Body) -> None:
    x = body.operator.inputs[0]
    squares = body.node("Mul", x, x)
    if body.operator.op_type == "ReduceL2":
        body.node("Sqrt", body.total(squares), is_last=True)
    else:
        body.total(squares, is_last=True)


def _reduced_magnitudes(body: Body) -> None:
    body.total(body.node("Abs", body.operator.inputs[0]), is_last=True)


def _reduced_logarithm(body: Body) -> None:
    body.node("Log", body.total(body.operator.inputs[0]), is_last=True)


# Operator type -> the first operator set that defines it by a function, its number of inputs, and the function.
_BODIES: dict[str, tuple[int, tuple[int, ...], Callable[[Body], None]]] = {
    "Gelu": (20, (1,), _gelu),
    "LeakyRelu": (16, (1,), _leaky_relu),
    "LogSoftmax": (13, (1,), _log_softmax),
    "PRelu": (16, (2,), _prelu),
    "ReduceL1": (18, (1, 2), _reduced_magnitudes),
    "ReduceL2": (18, (1, 2), _reduced_squares),
    "ReduceLogSum": (18, (1, 2), _reduced_logarithm),
    "ReduceSumSquare": (18, (1, 2), _reduced_squares),
    "Softmax": (13, (1,), _softmax),
    "Swish": (24, (1,), _swish),
}


def expanded(operator: Operator, opset: int) -> Body | None:
    """Returns the definition of `operator`, or None if it has none, or not in this form."""
    since, counts, write = _BODIES.get(operator.op_type, (0, (), None))
    fits = len(operator.outputs) == 1 and len(operator.inputs) in counts and all(operator.inputs)
    if write is None or opset < since or not fits:
        return None
    body = Body(operator)
    write(body)
    return body
