"""Variances, norms and products of real values along some axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.real import Real
from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.operators.real import operand
from service.compiler.importers.torch.values import Value
from service.compiler.qnn.graph import shape_of


def _axes(node: Node, x: relax.Expr, dim: Any) -> list[int]:
    return node.reduced_axes(None if dim in (None, [], ()) else dim, len(shape_of(x)))


def _variance(*, root: bool) -> Callable[..., Value]:
    def convert(
        node: Node, input: Any, dim: Any = None, unbiased: Any = None, keepdim: Any = False, *, correction: Any = None
    ) -> Value:
        """Converts the mean of squared distances from the mean. A correction is subtracted from the count."""
        x = operand(node, input)
        if isinstance(dim, bool):  # the overload without axes
            dim, unbiased = None, dim
        axes = _axes(node, x, dim)
        count = math.prod(shape_of(x)[axis] for axis in axes)
        given = correction if correction is not None else (1 if unbiased is None else int(node.flag(unbiased)))
        divisor = count - node.real(given)
        node.require_supported(divisor > 0, f"divides by {divisor:g}")
        wide = node.emit(relax.op.astype(x, "float64"), "wide")
        total = node.emit(relax.op.sum(wide, axis=axes, keepdims=True), "wide")
        mean = node.emit(relax.op.divide(total, _wide(count)), "wide")
        moved = node.emit(relax.op.subtract(wide, mean), "wide")
        squares = node.emit(relax.op.multiply(moved, moved), "wide")
        made = node.emit(relax.op.sum(squares, axis=axes, keepdims=node.flag(keepdim)), "wide")
        made = node.emit(relax.op.divide(made, _wide(divisor)), "wide")
        if root:
            made = node.emit(relax.op.sqrt(made), "wide")
        return node.value(relax.op.astype(made, "float32"), None)

    return convert


def _wide(number: float) -> relax.Constant:
    return relax.const(np.array(number, np.float64), "float64")


def _norm(node: Node, input: Any, ord: Any = 2, dim: Any = None, keepdim: Any = False, *, dtype: Any = None) -> Value:
    """Converts the sum of magnitudes, the root of the sum of squares, or the largest magnitude."""
    x, order = operand(node, input), 2.0 if ord is None else float(ord)
    axes, kept = _axes(node, x, dim), node.flag(keepdim)
    made = Real(node.emit, x)
    if order == 2:
        squares = made.apply(relax.op.multiply, x, x)
        return node.value(relax.op.sqrt(made(made.total(squares, axes, keepdims=kept))), None)
    sizes = made.apply(relax.op.abs, x)
    if order == 1:
        return node.value(made.total(sizes, axes, keepdims=kept), None)
    node.require_supported(order == math.inf, f"has the order {order:g}; only 1, 2 and infinity can be compiled")
    return node.value(relax.op.max(sizes, axis=axes, keepdims=kept), None)


def _logsumexp(node: Node, input: Any, dim: Any, keepdim: Any = False) -> Value:
    x = operand(node, input)
    axes, kept = _axes(node, x, dim), node.flag(keepdim)
    most = node.emit(relax.op.max(x, axis=axes, keepdims=True), "most")
    wide = node.emit(relax.op.astype(node.emit(relax.op.subtract(x, most), "moved"), "float64"), "wide")
    total = node.emit(relax.op.sum(node.emit(relax.op.exp(wide), "wide"), axis=axes, keepdims=True), "wide")
    logarithm = node.emit(relax.op.astype(node.emit(relax.op.log(total), "wide"), "float32"), "logarithm")
    made = node.emit(relax.op.add(logarithm, most), "sum")
    if kept:
        return Value(made)
    shape = [size for axis, size in enumerate(shape_of(x)) if axis not in axes]
    return node.value(relax.op.reshape(made, shape), None)


# Rules for operands that are not quantized, like `real.RULES`.
RULES: dict[str, Callable[..., Value]] = {
    "aten::linalg_vector_norm": _norm,
    "aten::logsumexp": _logsumexp,
    "aten::norm": _norm,
    "aten::std": _variance(root=True),
    "aten::var": _variance(root=False),
}
