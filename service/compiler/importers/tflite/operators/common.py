"""Helpers that several families of operators share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.core.models.arrays import Array


def same_dtype(node: Node) -> None:
    """Requires that the operator's outputs have the dtype of its input."""
    source = node.input(0).dtype
    for target in node.outputs:
        node.require(source == target.dtype, f"reads {source}, but writes {target.dtype}", target)


def take_elements(
    node: Node, x: relax.Expr, axis: int, count: int, positions: Callable[[], Array], part: str = ""
) -> relax.Expr:
    """Returns the `count` elements of `x` at `positions` of `axis`, in that order."""
    node.reserve(count * np.dtype(np.int64).itemsize)
    indices = relax.const(np.ascontiguousarray(positions(), np.int32))
    return node.emit(relax.op.take(x, indices, axis=axis, mode="clip"), part)
