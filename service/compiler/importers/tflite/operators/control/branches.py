"""CALL, STABLEHLO_COMPOSITE and IF."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from service.compiler.importers.tflite.model import called_by
from service.compiler.importers.tflite.node import Node
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.operation import value_of


def call(node: Node) -> list[relax.Expr]:
    (number,) = called_by(node.operator)
    return node.run(number, node.exprs())


def composite(node: Node) -> list[relax.Expr]:
    """Converts STABLEHLO_COMPOSITE by its decomposition, which LiteRT runs (tflite/kernels/stablehlo_composite.cc)."""
    return call(node)


def if_(node: Node) -> list[relax.Expr]:
    """Converts IF. If the condition is constant, only the branch that it selects is converted. Otherwise, both branches
    are computed, and the condition selects the results.
    """
    condition, *operands = node.exprs()
    known = value_of(condition)
    if known is not None:
        return node.run(called_by(node.operator)[0 if known.all() else 1], operands)
    then, otherwise = (node.run(number, operands) for number in called_by(node.operator))
    return selected(node, condition, then, otherwise)


def selected(
    node: Node, condition: relax.Expr, one: Sequence[relax.Expr], other: Sequence[relax.Expr]
) -> list[relax.Expr]:
    """Returns the values of `one` if the condition, a scalar, is true, and otherwise those of `other`."""
    scalar = node.emit(relax.op.reshape(condition, ()), "condition")
    results = []
    for position, (first, second) in enumerate(zip(one, other, strict=True)):
        if first.same_as(second):
            results.append(first)
            continue
        dtypes = str(first.ty.dtype), str(second.ty.dtype)
        node.require(dtypes[0] == dtypes[1], f"computes {dtypes[0]} or {dtypes[1]}")
        shapes = shape_of(first), shape_of(second)
        node.require_supported(
            shapes[0] == shapes[1],
            f"computes {list(shapes[0])} or {list(shapes[1])}, but every tensor of a build has a fixed shape",
            hint="give both cases results of the same shape",
        )
        results.append(node.emit(relax.op.where(scalar, first, second), f"selected_{position}"))
    return results
