"""LpPool and GlobalLpPool: norms of the elements of windows. They are computed in float64 and rounded once."""

from __future__ import annotations

from functools import reduce

from tvm import relax

from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import Convert, float32
from service.compiler.importers.onnx.operators.sliding.padding import with_explicit_pads
from service.compiler.importers.onnx.operators.sliding.places import FIRST, padded, places, pooled_axes
from service.compiler.importers.real import Wide


def lp_pool(node: Node) -> Value:
    """Returns (sum of |x|**p)**(1 / p) for the elements of each window."""
    float32(node)
    node = with_explicit_pads(node)
    wide, p = Wide(node.emit, node.expr(0)), _exponent(node)
    axes = pooled_axes(node)
    parts = places(node, padded(node, _powers(wide, p), axes, 0.0), axes)
    total = reduce(lambda one, other: wide.apply(relax.op.add, one, other), parts)
    return wide.rounded(wide.apply(relax.op.power, total, 1 / p))


def global_lp_pool(node: Node) -> Value:
    """Returns the norm of all elements of each channel."""
    float32(node)
    rank = len(node.shape(0))
    node.require(rank > FIRST, f"has an input of shape {list(node.shape(0))}, not [N, C, …]")
    wide, p = Wide(node.emit, node.expr(0)), _exponent(node)
    total = wide(relax.op.sum(_powers(wide, p), axis=list(range(FIRST, rank)), keepdims=True))
    return wide.rounded(wide.apply(relax.op.power, total, 1 / p))


def _exponent(node: Node) -> float:
    # the first operator set has a float32 here
    given = node.operator.attributes.get("p", 2)
    node.require(isinstance(given, int | float) and given > 0, f"has the exponent {str(given)[:16]}")
    return float(given)


def _powers(wide: Wide, p: float) -> relax.Expr:
    size = wide.apply(relax.op.abs, wide.x)
    return size if p == 1 else wide.apply(relax.op.power, size, p)


NORMS: dict[str, tuple[Convert, tuple[int, int]]] = {
    "GlobalLpPool": (global_lp_pool, (1, 1)),
    "LpPool": (lp_pool, (1, 1)),
}
