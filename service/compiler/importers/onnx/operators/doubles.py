"""Operators of float64 values. Each computes in float64. The order of sums and the functions of the C library can
differ from ONNX Runtime's, so that results agree to a few units in the last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import operands, reduced_axes
from service.compiler.qnn.graph import shape_of

Convert = Callable[[Node], Value]
DOUBLE = "float64"
_EPSILON = float(np.float32(1e-5))  # attributes are float32
_LAST_AXIS_SINCE = 13  # as for softmax in float32


def is_double(node: Node) -> bool:
    """Returns true if an operator has a rule in this module for its operands."""
    given = [index for index in range(node.input_count) if node.has(index)]
    return node.operator.op_type in DOUBLES and any(node.dtype(index) == DOUBLE for index in given)


def _same_types(node: Node) -> None:
    types = {node.dtype(index) for index in range(node.input_count) if node.has(index)}
    node.require(types == {DOUBLE}, f"has operands of different types: {', '.join(sorted(types))}")


def _number(value: float) -> relax.Constant:
    return relax.const(np.array(value, np.float64), DOUBLE)


def _of(make: Callable[..., relax.Expr]) -> Convert:
    """Returns the converter of a Relax operator."""

    def convert(node: Node) -> Value:
        _same_types(node)
        return node.emit(make(*operands(node)))

    return convert


def _chain(make: Callable[..., relax.Expr]) -> Convert:
    """Returns the converter of an operator with one or more operands."""

    def convert(node: Node) -> Value:
        _same_types(node)
        result, *rest = operands(node)
        for value in rest:
            result = node.emit(make(result, value), "part")
        return node.emit(result)

    return convert


def _sigmoid(node: Node) -> Value:
    power = node.emit(relax.op.exp(node.emit(relax.op.negative(node.expr(0)), "negated")), "power")
    return node.emit(relax.op.divide(_number(1), node.emit(relax.op.add(power, _number(1)), "sum")))


def _modulo(node: Node) -> Value:
    node.require(bool(node.attribute("fmod", 0)), "works on real values without fmod")
    return _of(relax.op.mod)(node)


def _clip(node: Node) -> Value:
    result = node.expr(0)
    for index, name, bound_by in ((1, "min", relax.op.maximum), (2, "max", relax.op.minimum)):
        if node.has(index):
            bound = node.emit(relax.op.reshape(node.expr(index), ()), f"{name}_bound")
            result = node.emit(bound_by(result, bound), name)
    return node.emit(result)


def _matmul(node: Node) -> Value:
    _same_types(node)
    return node.emit(relax.op.matmul(node.expr(0), node.expr(1)))


def _gemm(node: Node) -> Value:
    _same_types(node)
    left, right = (
        node.emit(relax.op.permute_dims(node.expr(index)), name) if node.attribute(name, 0) else node.expr(index)
        for index, name in ((0, "transA"), (1, "transB"))
    )
    result = node.emit(relax.op.matmul(left, right), "product")
    if (alpha := node.attribute("alpha", 1.0)) != 1:
        result = node.emit(relax.op.multiply(result, _number(alpha)), "scaled")
    if node.has(2):
        addend = node.expr(2)
        if (beta := node.attribute("beta", 1.0)) != 1:
            addend = node.emit(relax.op.multiply(addend, _number(beta)), "addend")
        result = node.emit(relax.op.add(result, addend), "sum")
        node.require(shape_of(result) == (shape_of(left)[0], shape_of(right)[1]), "has an addend that does not fit")
    return node.emit(result)


def _mean(node: Node, x: relax.Expr, axes: list[int], *, keepdims: bool, part: str = "") -> relax.Expr:
    total = node.emit(relax.op.sum(x, axis=axes, keepdims=keepdims), f"{part}sum")
    count = math.prod(shape_of(x)[axis] for axis in axes)
    return node.emit(relax.op.divide(total, _number(count)), part)


def _reduced(of: Callable[[Node, relax.Expr], relax.Expr], *, mean: bool = False, root: bool = False) -> Convert:
    """Returns the converter of a sum of `of(node, x)`, or of its mean or its root."""

    def convert(node: Node) -> Value:
        axes, keepdims = reduced_axes(node)
        x = of(node, node.expr(0))
        if not axes:
            return node.emit(x)
        if mean:
            return _mean(node, x, axes, keepdims=keepdims)
        total = node.emit(relax.op.sum(x, axis=axes, keepdims=keepdims), "sum")
        return node.emit(relax.op.sqrt(total)) if root else total

    return convert


def _softmax(node: Node, *, logarithm: bool = False) -> Value:
    shape = node.shape(0)
    recent = node.state.model.opset >= _LAST_AXIS_SINCE
    axis = node.axis(node.attribute("axis", -1 if recent else 1), len(shape))
    x = node.expr(0)
    if not recent:
        x = node.emit(relax.op.reshape(x, (*shape[:axis], math.prod(shape[axis:]))), "rows")
    greatest = node.emit(relax.op.max(x, axis=[axis], keepdims=True), "greatest")
    shifted = node.emit(relax.op.subtract(x, greatest), "shifted")
    powers = node.emit(relax.op.exp(shifted), "powers")
    total = node.emit(relax.op.sum(powers, axis=[axis], keepdims=True), "total")
    if logarithm:
        made = node.emit(relax.op.subtract(shifted, node.emit(relax.op.log(total), "logarithm")), "result")
    else:
        made = node.emit(relax.op.divide(powers, total), "result")
    return node.emit(made if recent else relax.op.reshape(made, shape))


def _batch_normalization(node: Node) -> Value:
    _same_types(node)
    rank = len(node.shape(0))
    shape = [1, -1, *[1] * (rank - 2)] if rank > 1 else [-1]
    scale, shift, mean, variance = (
        node.emit(relax.op.reshape(node.expr(index), shape), f"vector{index}") for index in range(1, 5)
    )
    deviation = node.emit(relax.op.add(variance, _number(node.attribute("epsilon", _EPSILON))), "variance")
    factor = node.emit(relax.op.divide(scale, node.emit(relax.op.sqrt(deviation), "deviation")), "factor")
    centered = node.emit(relax.op.subtract(node.expr(0), mean), "centered")
    return node.emit(relax.op.add(node.emit(relax.op.multiply(centered, factor), "scaled"), shift))


def _layer_normalization(node: Node) -> Value:
    _same_types(node)
    node.require_supported(not any(node.operator.outputs[1:]), "returns its means too, which cannot be compiled")
    rank = len(node.shape(0))
    axes = list(range(node.axis(node.attribute("axis", -1), rank), rank))
    x = node.expr(0)
    centered = node.emit(relax.op.subtract(x, _mean(node, x, axes, keepdims=True, part="mean")), "centered")
    squares = node.emit(relax.op.multiply(centered, centered), "squares")
    variance = _mean(node, squares, axes, keepdims=True, part="variance")
    moved = node.emit(relax.op.add(variance, _number(node.attribute("epsilon", _EPSILON))), "moved")
    normal = node.emit(relax.op.divide(centered, node.emit(relax.op.sqrt(moved), "deviation")), "normal")
    scaled = node.emit(relax.op.multiply(normal, node.expr(1)), "scaled")
    return node.emit(relax.op.add(scaled, node.expr(2))) if node.has(2) else scaled


def _itself(_node: Node, x: relax.Expr) -> relax.Expr:
    return x


def _squared(node: Node, x: relax.Expr) -> relax.Expr:
    return node.emit(relax.op.multiply(x, x), "squares")


def _magnitude(node: Node, x: relax.Expr) -> relax.Expr:
    return node.emit(relax.op.abs(x), "magnitudes")


_RELAX: dict[str, Any] = {
    "Abs": relax.op.abs,
    "Add": relax.op.add,
    "Ceil": relax.op.ceil,
    "Cos": relax.op.cos,
    "Div": relax.op.divide,
    "Equal": relax.op.equal,
    "Exp": relax.op.exp,
    "Floor": relax.op.floor,
    "Greater": relax.op.greater,
    "GreaterOrEqual": relax.op.greater_equal,
    "IsNaN": relax.op.isnan,
    "Less": relax.op.less,
    "LessOrEqual": relax.op.less_equal,
    "Log": relax.op.log,
    "Mul": relax.op.multiply,
    "Neg": relax.op.negative,
    "Pow": relax.op.power,
    "Reciprocal": lambda x: relax.op.divide(_number(1), x),
    "Relu": relax.op.nn.relu,
    "Round": relax.op.round,
    "Sign": relax.op.sign,
    "Sin": relax.op.sin,
    "Sqrt": relax.op.sqrt,
    "Sub": relax.op.subtract,
    "Tanh": relax.op.tanh,
}
# Operator type -> its converter, for operands of float64 only.
DOUBLES: dict[str, Convert] = {
    **{name: _of(make) for name, make in _RELAX.items()},
    "BatchNormalization": _batch_normalization,
    "Clip": _clip,
    "Gemm": _gemm,
    "LayerNormalization": _layer_normalization,
    "LogSoftmax": lambda node: _softmax(node, logarithm=True),
    "MatMul": _matmul,
    "Max": _chain(relax.op.maximum),
    "Min": _chain(relax.op.minimum),
    "Mod": _modulo,
    "ReduceL1": _reduced(_magnitude),
    "ReduceL2": _reduced(_squared, root=True),
    "ReduceMean": _reduced(_itself, mean=True),
    "ReduceSum": _reduced(_itself),
    "ReduceSumSquare": _reduced(_squared),
    "Sigmoid": _sigmoid,
    "Softmax": _softmax,
    "Sum": _chain(relax.op.add),
}
