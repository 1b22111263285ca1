"""Operators on the bits of whole numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import Convert, plain


def bit_shift(node: Node) -> Value:
    """Inputs: X, Y, of the same unsigned type. Shifts the bits of X by Y positions, to the left or to the right.

    A shift by at least the width of the type has the result 0, as in ONNX Runtime for the widths that it tests.
    """
    direction = node.attribute("direction", "")
    node.require(direction in ("LEFT", "RIGHT"), f"has the unknown direction {direction[:16]}")
    to_left = direction == "LEFT"
    known = node.all_known()
    if known is not None and node.is_small(known):
        return node.folded((np.left_shift if to_left else np.right_shift)(*known))
    dtype = node.dtype(0)
    node.require(np.dtype(dtype).kind == "u" and node.dtype(1) == dtype, f"shifts {dtype} by {node.dtype(1)}")
    width = np.iinfo(dtype).bits
    is_wide = node.emit(relax.op.greater_equal(node.expr(1), node.literal(np.array(width, dtype))), "wide")
    count = node.emit(relax.op.minimum(node.expr(1), node.literal(np.array(width - 1, dtype))), "count")
    shifted = node.emit((relax.op.left_shift if to_left else relax.op.right_shift)(node.expr(0), count), "shifted")
    return node.emit(relax.op.where(is_wide, node.literal(np.array(0, dtype)), shifted))


def _of_integers(make: Callable[..., relax.Call], compute: Callable[..., Any]) -> Convert:
    return plain(make, compute, "iu")


BITS: dict[str, tuple[Convert, tuple[int, int]]] = {
    "BitShift": (bit_shift, (2, 2)),
    "BitwiseAnd": (_of_integers(relax.op.bitwise_and, np.bitwise_and), (2, 2)),
    "BitwiseNot": (_of_integers(relax.op.bitwise_not, np.invert), (1, 1)),
    "BitwiseOr": (_of_integers(relax.op.bitwise_or, np.bitwise_or), (2, 2)),
    "BitwiseXor": (_of_integers(relax.op.bitwise_xor, np.bitwise_xor), (2, 2)),
}
