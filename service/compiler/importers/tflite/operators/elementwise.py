"""ADD and MUL."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.qnn import ops
from service.compiler.qnn.numerics.fixed_point import power_of_two
from service.compiler.qnn.types import QuantizedType

Binary = Callable[[relax.Expr, relax.Expr, QuantizedType, QuantizedType, QuantizedType], relax.Call]


def add(node: Node) -> relax.Var:
    """16-bit values whose scales are all powers of two have a kernel of their own, unless the file says that they are
    not to be taken as such (`Prepare` in tflite/kernels/add.cc)."""
    scales = (node.in_type(0).scale, node.in_type(1).scale, node.out_type().scale)
    by_shifts = node.output.dtype == "int16" and bool(node.option("pot_scale_int16"))
    if by_shifts and all(power_of_two(scale) is not None for scale in scales):
        node.unsupported("adds 16-bit values by shifts alone (pot_scale_int16), as old converters wrote it")
    return _binary(node, ops.add)


def mul(node: Node) -> relax.Var:
    return _binary(node, ops.mul)


def _binary(node: Node, make: Binary) -> relax.Var:
    """All of one storage type, and broadcast as NumPy does (`Prepare` in tflite/kernels/add.cc and mul.cc)."""
    lhs, rhs, out = node.in_type(0), node.in_type(1), node.out_type(node.activation())
    node.require(lhs.storage == rhs.storage == out.storage, f"mixes {lhs.storage}, {rhs.storage} and {out.storage}")
    return node.emit(make(node.expr(0), node.expr(1), lhs, rhs, out))
