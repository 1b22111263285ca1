"""ADD and MUL."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.qnn import ops
from service.compiler.qnn.types import QuantizedType

Binary = Callable[[relax.Expr, relax.Expr, QuantizedType, QuantizedType, QuantizedType], relax.Call]


def add(node: Node) -> relax.Var:
    return _binary(node, ops.add)


def mul(node: Node) -> relax.Var:
    return _binary(node, ops.mul)


def _binary(node: Node, make: Binary) -> relax.Var:
    """All of one storage type, and broadcast as NumPy does (`Prepare` in tflite/kernels/add.cc and mul.cc)."""
    lhs, rhs, out = node.in_type(0), node.in_type(1), node.out_type(node.activation())
    node.require(lhs.storage == rhs.storage == out.storage, f"mixes {lhs.storage}, {rhs.storage} and {out.storage}")
    return node.emit(make(node.expr(0), node.expr(1), lhs, rhs, out))
