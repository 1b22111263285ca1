"""Arithmetic of two tensors: QLinearAdd and QLinearMul, and operators of real values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators import real
from service.compiler.qnn import ops

_RELAX: dict[str, Callable[..., relax.Expr]] = {
    "Add": relax.op.add,
    "Div": relax.op.divide,
    "Mul": relax.op.multiply,
    "Sub": relax.op.subtract,
}
_NUMPY: dict[str, Callable[..., Any]] = {"Add": np.add, "Div": np.divide, "Mul": np.multiply, "Sub": np.subtract}


def qlinear_add(node: Node) -> relax.Var:
    """Inputs: A, A_scale, A_zero_point, B, B_scale, B_zero_point, C_scale, C_zero_point (com.microsoft).

    The sum has three terms and depends on their order. MLAS adds the second operand first. But if the first operand is
    repeated along the last axis that is longer than 1, MLAS adds the first operand first (`QLinearBroadcast` in
    contrib_ops/cpu/quantization/qlinear_binary_op.cc). In that case, this rule swaps the operands.
    """
    return _binary(node, ops.add, swapped=_repeats(node.shape(0), node.shape(3)))


def qlinear_mul(node: Node) -> relax.Var:
    """Inputs: as for `qlinear_add`."""
    return _binary(node, ops.mul, swapped=False)


def qlinear_where(node: Node) -> relax.Var:
    """Inputs: condition, X, x_scale, x_zero_point, Y, y_scale, y_zero_point, z_scale, z_zero_point (com.microsoft).
    Each operand is converted to the type of the result first.
    """
    node.require(node.dtype(0) == "bool", f"has a condition of {node.dtype(0)}, not bool")
    types = [node.quantized(first, first + 1, first + 2) for first in (1, 4)]
    out = node.output_type(7, 8, types[0].storage)
    node.require({each.storage for each in types} == {out.storage}, f"mixes {types[0].storage} and {types[1].storage}")
    operands = [
        node.expr(index) if own == out else node.emit(ops.requantize(node.expr(index), own, out), "converted")
        for index, own in zip((1, 4), types, strict=True)
    ]
    return node.typed(node.emit(relax.op.where(node.expr(0), *operands)), out)


def _binary(node: Node, make: Callable[..., relax.Call], *, swapped: bool) -> relax.Var:
    lhs, rhs = node.quantized(0, 1, 2), node.quantized(3, 4, 5)
    out = node.output_type(6, 7, lhs.storage)
    node.require(lhs.storage == rhs.storage == out.storage, f"mixes {lhs.storage}, {rhs.storage} and {out.storage}")
    operands, types = [node.expr(0), node.expr(3)], [lhs, rhs]
    if swapped:
        operands, types = operands[::-1], types[::-1]
    return node.typed(node.emit(make(*operands, *types, out)), out)


def _repeats(lhs: tuple[int, ...], rhs: tuple[int, ...]) -> bool:
    """Returns true if `lhs` is repeated along the last axis on which at least one operand is longer than 1."""
    rank = max(len(lhs), len(rhs))
    pairs = list(zip((1,) * (rank - len(lhs)) + lhs, (1,) * (rank - len(rhs)) + rhs, strict=True))
    last = next((pair for pair in reversed(pairs) if pair != (1, 1)), (1, 1))
    return last[0] == 1 and last[1] != 1


def arithmetic(node: Node) -> Value:
    """Converts Add, Sub, Mul and Div. Arithmetic on shapes is computed while importing. Arithmetic on float32 and whole
    numbers is computed at run time.
    """
    kind, known = node.operator.op_type, [node.known_value(0), node.known_value(1)]
    if all(data is not None and data.dtype.kind in "iu" for data in known) and node.is_small(node.all_known() or ()):
        if kind == "Div":
            return node.folded(_truncated(node, known[0], known[1]))
        return node.folded(_NUMPY[kind](*known))
    if kind == "Div" and np.dtype(node.dtype(0)).kind in "iu":
        return _divided(node)
    return real.plain(_RELAX[kind], _NUMPY[kind], dtypes="fiu")(node)


def _divided(node: Node) -> Value:
    """Divides whole numbers, rounding towards zero. A constant divisor must not be 0.

    An integer division by zero, or of the smallest number by -1, would end the process. If the divisor is computed,
    the quotient by 0 is therefore 0 (ONNX does not define it), and the quotient by -1 is computed as the negative.
    """
    node.require(node.dtype(0) == node.dtype(1), f"cannot divide {node.dtype(0)} by {node.dtype(1)}")
    divisor, dtype = node.constant_data(1), node.dtype(0)
    if divisor is not None:
        node.require_supported(bool((divisor != 0).all()), "divides by zero")
        if dtype.startswith("u") or bool((divisor != -1).all()):
            return node.emit(relax.op.divide(*real.operands(node)))
    zero, one, minus = (node.literal(np.array(value).astype(dtype)) for value in (0, 1, -1))
    lhs, rhs = real.operands(node)
    is_zero = node.emit(relax.op.equal(rhs, zero), "zero")
    safe = node.emit(relax.op.where(is_zero, one, rhs), "safe")
    if dtype.startswith("u"):
        quotient = node.emit(relax.op.divide(lhs, safe), "quotient")
    else:
        is_minus = node.emit(relax.op.equal(rhs, minus), "minus")
        safe = node.emit(relax.op.where(is_minus, one, safe), "safe")
        quotient = node.emit(relax.op.divide(lhs, safe), "quotient")
        quotient = node.emit(relax.op.where(is_minus, relax.op.subtract(zero, quotient), quotient), "quotient")
    return node.emit(relax.op.where(is_zero, zero, quotient))


def _truncated(node: Node, lhs: Any, rhs: Any) -> Any:
    node.require_supported(bool((rhs != 0).all()), "divides by zero")
    return (np.sign(lhs) * np.sign(rhs)) * (np.abs(lhs) // np.abs(rhs))


def clip(node: Node) -> Value:
    """Clips float32 and whole numbers. Up to operator set 10, the bounds are attributes; later, they are inputs of one
    element.
    """
    dtype, known = (
        node.dtype(0),
        [node.known_value(position) for position in range(node.input_count) if node.has(position)],
    )
    if np.dtype(dtype).kind not in "fiu" or (np.dtype(dtype).kind == "f" and dtype != "float32"):
        node.unsupported(f"works on {dtype}; only whole numbers and float32 can be compiled", node.name(0))
    values = [each for each in known if each is not None]
    if len(values) == len(known) and node.is_small(values):
        return _clipped(node, values[0])
    result = node.expr(0)
    for position, name, bound_by in ((1, "min", relax.op.maximum), (2, "max", relax.op.minimum)):
        if node.has(position):
            node.require(node.dtype(position) == dtype, f"has values of {dtype}, but a bound of {node.dtype(position)}")
            node.require(
                math.prod(node.shape(position)) == 1,
                f"has a bound of shape {list(node.shape(position))}, not one element",
            )
            bound = node.expr(position)
            if node.name(position) not in node.state.loose:
                bound = node.emit(relax.op.reshape(bound, ()), "bound")
            result = node.emit(bound_by(result, bound), name)
        elif name in node.operator.attributes:
            result = node.emit(bound_by(result, relax.const(node.attribute(name, 0.0), "float32")), name)
    return node.emit(result)


def _clipped(node: Node, x: Any) -> Any:
    for position, name, bound_by in ((1, "min", np.maximum), (2, "max", np.minimum)):
        if node.has(position):
            x = bound_by(x, node.data(position).reshape(()))
        elif name in node.operator.attributes:
            x = bound_by(x, np.float32(node.attribute(name, 0.0)))
    return node.folded(x)


def relu(node: Node) -> relax.Var:
    """Converts Relu of float32."""
    real.float32(node)
    return node.emit(relax.op.nn.relu(node.expr(0)))
