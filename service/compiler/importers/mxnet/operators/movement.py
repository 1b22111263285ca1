"""Operators that do not change elements: flatten, and operators that have no effect at inference."""

from __future__ import annotations

import math

from tvm import relax

from service.compiler.importers.mxnet.node import Node, Tensor, Value, edges


def quantized_flatten(node: Node) -> list[Value]:
    """Flattens `[N, …]` to `[N, K]`; keeps the range (quantized_flatten-inl.h)."""
    node.count(3)
    return [_flat(node, node.tensor(0, "int8", "uint8")), *edges(*node.range(1))]


def flatten(node: Node) -> list[Value]:
    """Flattens real values; the operator follows a dequantize."""
    node.count(1)
    return [_flat(node, node.tensor(0, "float32"))]


def identity(node: Node) -> list[Value]:
    """Returns the operand. Dropout and copies do nothing at inference."""
    node.count(1)
    return [node.tensor(0, "float32", "int8", "uint8")]


def _flat(node: Node, x: Tensor) -> Tensor:
    node.require(len(x.shape) >= 1, "flattens a scalar")
    shape = (x.shape[0], math.prod(x.shape[1:]))
    return node.result(node.emit(relax.op.reshape(x.expr, shape)))
