"""Arithmetic with two operands: ADD, SUB, MUL, SQUARED_DIFFERENCE, PRELU, MAXIMUM, MINIMUM.

Quantized tensors are converted to the QNN dialect. Other tensors (shapes, indices) are converted to plain Relax.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from service.compiler.importers.tflite import activations, delegate
from service.compiler.importers.tflite.node import Node
from service.compiler.qnn import ops
from service.compiler.qnn.numerics.scaling.fixed_point import power_of_two
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

Binary = Callable[[relax.Expr, relax.Expr, QuantizedType, QuantizedType, QuantizedType], relax.Call]
Plain = Callable[[relax.Expr, relax.Expr], relax.Expr]


def add(node: Node) -> relax.Expr:
    _require_general_kernel(node)
    return _binary(node, ops.add, relax.op.add)


def _require_general_kernel(node: Node) -> None:
    """Refuses an ADD or SUB of 16-bit values whose scales are all powers of two, unless an option disables LiteRT's
    separate kernel for them (`Prepare` in tflite/kernels/add.cc and sub.cc).
    """
    if node.is_quantized and node.output.dtype == "int16" and node.option("pot_scale_int16"):
        scales = (node.in_type(0).scale, node.in_type(1).scale, node.out_type().scale)
        if all(power_of_two(scale) is not None for scale in scales):
            node.unsupported("adds 16-bit values only with shifts (pot_scale_int16), as old converters wrote it")


def sub(node: Node) -> relax.Expr:
    _require_general_kernel(node)
    return _binary(node, ops.sub, relax.op.subtract)


def mul(node: Node) -> relax.Expr:
    """Converts MUL. For a product of a tensor with itself, XNNPACK uses a function of one operand, which rounds
    differently from its product of two tensors.
    """
    if node.operator.inputs[0] == node.operator.inputs[1] and node.is_quantized and delegate.takes(node):
        return node.emit(ops.unary("square", node.expr(0), node.in_type(0), node.out_type(node.activation())))
    return _binary(node, ops.mul, relax.op.multiply)


def of_one_storage(make: Binary, *, activated: bool = False) -> Callable[[Node], relax.Expr]:
    """Returns the converter of arithmetic on operands of one storage type, which broadcast as in NumPy (`Prepare` in
    tflite/kernels/add.cc and mul.cc).
    """

    def convert(node: Node) -> relax.Expr:
        lhs, rhs = node.in_type(0), node.in_type(1)
        out = node.out_type(node.activation()) if activated else node.out_type()
        node.require(lhs.storage == rhs.storage == out.storage, f"mixes {lhs.storage}, {rhs.storage} and {out.storage}")
        return node.emit(make(node.expr(0), node.expr(1), lhs, rhs, out))

    return convert


def prelu(node: Node) -> relax.Expr:
    """Converts PRELU. The second operand is the slope. With 16-bit values, LiteRT 2.3.0 reads 8-bit slopes, whatever
    the type of the slopes is (`PreluEval` in tflite/kernels/activations.cc): of 16-bit slopes, it reads the first half
    of the bytes.
    """
    x_type, out_type, slopes = node.in_type(0), node.out_type(), node.input(1)
    node.require(x_type.storage == out_type.storage, f"reads {x_type.storage}, but writes {out_type.storage}")
    if x_type.storage != "int16":
        node.require(slopes.dtype == x_type.storage, f"has slopes of {slopes.dtype}", slopes)
        return node.emit(ops.prelu(node.expr(0), node.expr(1), x_type, node.in_type(1), out_type))
    node.require(slopes.dtype in ("int8", "int16"), f"has slopes of {slopes.dtype}, not int8", slopes)
    alpha_type = QuantizedType("int8", (node.in_type(1).scale,), (node.in_type(1).zero_point,))
    alpha = node.expr(1) if slopes.dtype == "int8" else node.constant(1, _first_bytes)
    return node.emit(ops.prelu(node.expr(0), alpha, x_type, alpha_type, out_type))


def _first_bytes(values: Array) -> Array:
    """Returns as many int8 values as `values` has elements, from its bytes."""
    return np.frombuffer(values.tobytes(), np.int8)[: values.size].reshape(values.shape)


def squared_difference(node: Node) -> relax.Expr:
    """Converts SQUARED_DIFFERENCE of stored values or of integers."""
    if node.is_quantized:
        return of_one_storage(ops.squared_difference)(node)
    require_one_dtype(node)
    difference = node.emit(relax.op.subtract(node.expr(0), node.expr(1)), "difference")
    return node.emit(relax.op.multiply(difference, difference))


def _binary(node: Node, make: Binary, plain: Plain) -> relax.Expr:
    return quantized(node, make) if node.is_quantized else _plain(node, plain)


def quantized(node: Node, make: Binary) -> relax.Expr:
    return of_one_storage(make, activated=True)(node)


def _plain(node: Node, make: Plain) -> relax.Expr:
    require_one_dtype(node)
    return clamped(node, node.emit(make(node.expr(0), node.expr(1)), "unbounded"), node.activation())


def clamped(node: Node, x: relax.Expr, activation: str) -> relax.Expr:
    """Clamps values that are not quantized to the bounds of an activation."""
    for bound, limit in zip(activations.BOUNDS[activation], (relax.op.maximum, relax.op.minimum), strict=True):
        if bound is not None:
            x = node.emit(limit(x, relax.const(np.array(bound, node.output.dtype), node.output.dtype)))
    return x


def require_one_dtype(node: Node) -> None:
    dtypes = {node.input(index).dtype for index in range(node.input_count)} | {node.output.dtype}
    node.require(len(dtypes) == 1, f"mixes {' and '.join(sorted(dtypes))}")


def extreme(make: Plain) -> Callable[[Node], relax.Expr]:
    """Returns the converter to the larger or smaller of two stored values. The kernel ignores scales, so operands and
    result must have the same quantization (tflite/kernels/maximum_minimum.cc).
    """

    def convert(node: Node) -> relax.Expr:
        require_one_dtype(node)
        if node.is_quantized:
            node.require_one_type()
        return node.emit(make(node.expr(0), node.expr(1)))

    return convert
