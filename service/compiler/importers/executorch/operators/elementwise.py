"""Arithmetic, functions of one value, and conversions of types."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from service.compiler.importers.executorch.file.delegate_schema import FP32, QDINT8, QINT8, QPINT8, QUINT8
from service.compiler.importers.executorch.node import Node
from service.compiler.importers.executorch.values import Dynamic, Stored, Value
from service.compiler.qnn import ops


def _convert(node: Node) -> Value:
    """`Convert`: quantizes, dequantizes, or changes the scale."""
    node.check_flags()
    x, wanted = node.value("input_id"), node.output.datatype
    node.require_supported(
        wanted in (FP32, QINT8, QUINT8, QDINT8, QPINT8), f"converts to datatype {wanted}, which cannot be compiled"
    )
    if wanted == FP32:
        return node.emit(ops.dequantize(x.expr, x.type)) if isinstance(x, Stored) else node.expr("input_id")
    if wanted in (QDINT8, QPINT8):
        return Dynamic(node.expr("input_id"))
    out_type = node.type_of(node.output)
    if isinstance(x, Stored):
        node.require(x.type.storage == out_type.storage, f"converts {x.type.storage} to {out_type.storage}")
        return x if x.type == out_type else Stored(node.emit(ops.requantize(x.expr, x.type, out_type)), out_type)
    return Stored(node.emit(ops.quantize(node.expr("input_id"), out_type)), out_type)


def _binary(make: Callable[..., relax.Call] | None, op_type: str) -> Callable[[Node], Value]:
    """Returns the rule of a node with two operands: `make` for stored values, `op_type` for real ones."""

    def convert(node: Node) -> Value:
        node.check_flags()
        operands = node.value("input1_id"), node.value("input2_id")
        if make is not None and any(isinstance(each, Stored) for each in operands):
            lhs, rhs, out_type = node.stored("input1_id"), node.stored("input2_id"), node.out_type()
            return Stored(node.emit(make(lhs.expr, rhs.expr, lhs.type, rhs.type, out_type)), out_type)
        return node.clamped(node.step(op_type, node.expr("input1_id"), node.reals("input2_id")))

    return convert


def _multiply(node: Node) -> Value:
    """`Multiply`. XNNPACK computes the product of a stored tensor with itself by a function of one operand."""
    same = node.tensor("input1_id") is node.tensor("input2_id")
    x = node.value("input1_id")
    if same and isinstance(x, Stored):
        node.check_flags()
        out_type = node.out_type()
        return Stored(node.emit(ops.unary("square", x.expr, x.type, out_type)), out_type)
    return _binary(ops.mul, "Mul")(node)


def _function(op_type: str, stored: str = "") -> Callable[[Node], Value]:
    """Returns the rule of a function: ONNX's operator `op_type` of real values, and the function `stored` of
    `qnn.ops.unary` of stored ones.
    """

    def convert(node: Node) -> Value:
        node.check_flags()
        x = node.value("input_id")
        if stored and isinstance(x, Stored):
            out_type = node.out_type()
            return Stored(node.emit(ops.unary(stored, x.expr, x.type, out_type)), out_type)
        return node.clamped(node.step(op_type, node.expr("input_id")))

    return convert


def _square(node: Node) -> Value:
    node.check_flags()
    x = node.value("input_id")
    if isinstance(x, Stored):
        return _function("", "square")(node)
    return node.clamped(node.step("Mul", node.expr("input_id"), node.expr("input_id")))


def _reciprocal_root(node: Node) -> Value:
    node.check_flags()
    return node.clamped(node.step("Reciprocal", node.step("Sqrt", node.expr("input_id"))))


def _clamp(node: Node) -> Value:
    node.check_flags()
    x = node.value("input_id")
    if not isinstance(x, Stored):
        return node.clamped(node.expr("input_id"))
    out_type = node.out_type()
    return Stored(node.emit(ops.unary("relu", x.expr, x.type, out_type)), out_type)


def _leaky_relu(node: Node) -> Value:
    node.check_flags()
    x, alpha = node.value("input_id"), node.real("negative_slope")
    if isinstance(x, Stored):
        out_type = node.out_type()
        return Stored(node.emit(ops.unary("leaky_relu", x.expr, x.type, out_type, alpha=alpha)), out_type)
    return node.clamped(node.step("LeakyRelu", node.expr("input_id"), alpha=alpha))


def _elu(node: Node) -> Value:
    node.check_flags()
    x, alpha = node.value("input_id"), node.real("alpha")
    if isinstance(x, Stored):
        node.require_supported(alpha == 1, "has an alpha other than 1, in integers")
        return _function("", "elu")(node)
    return node.clamped(node.step("Elu", node.expr("input_id"), alpha=alpha))


def _softmax(node: Node) -> Value:
    node.check_flags()
    return node.clamped(node.step("Softmax", node.expr("input_id"), axis=-1))


RULES: dict[str, Callable[[Node], Value]] = {
    "Abs": _function("Abs"),
    "Add": _binary(ops.add, "Add"),
    "Ceiling": _function("Ceil"),
    "Clamp": _clamp,
    "Convert": _convert,
    "Cos": _function("Cos"),
    "Div": _binary(None, "Div"),
    "ELU": _elu,
    "Exp": _function("Exp"),
    "Floor": _function("Floor"),
    "Gelu": _function("Gelu"),
    "Hardswish": _function("HardSwish"),
    "LeakyReLU": _leaky_relu,
    "Log": _function("Log"),
    "Maximum": _binary(None, "Max"),
    "Minimum": _binary(None, "Min"),
    "Multiply": _multiply,
    "Negate": _function("Neg"),
    "PReLU": _binary(None, "PRelu"),
    "ReciprocalSquareRoot": _reciprocal_root,
    "Sigmoid": _function("Sigmoid", "logistic"),
    "Sin": _function("Sin"),
    "Softmax": _softmax,
    "Square": _square,
    "SquareRoot": _function("Sqrt"),
    "Subtract": _binary(ops.sub, "Sub"),
    "Tanh": _function("Tanh", "tanh"),
}
