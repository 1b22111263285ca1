"""DIV of uint8; and DIV of whole numbers, FLOOR_DIV and FLOOR_MOD, which divide the elements as they are stored and
ignore scales.

If a divisor is 0, LiteRT's call fails. Here, the result is 0 for whole numbers; for real values, it follows IEEE 754.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.elementwise import clamped, quantized, require_one_dtype
from service.compiler.qnn import ops

Operands = tuple[relax.Expr, relax.Expr]
_GROUP, _NARROW_BYTES = 8, 2


def floor_div(node: Node) -> relax.Expr:
    """Converts FLOOR_DIV: the quotient in float64, rounded down (`FloorDiv` in reference/floor_div.h).

    The smallest number divided by -1 does not fit int32, int16 or int8, and C++ does not define the result. In LiteRT
    2.3.0 on x86-64, it wraps around. An exception are int8 and int16 operands of the same shape: vector instructions
    convert whole groups of eight elements, and saturate.
    """
    require_one_dtype(node)
    if node.output.dtype == "float32":
        return node.emit(relax.op.astype(_floored(node, _wide(node)), "float32"))
    shape, dtype = node.input(0).shape, np.dtype(node.output.dtype)
    saturating = math.prod(shape) // _GROUP * _GROUP
    if dtype.itemsize > _NARROW_BYTES or shape != node.input(1).shape or not saturating:
        return _whole(node, _floored)
    return _whole(node, partial(_floored_within, saturating=saturating, most=float(np.iinfo(dtype).max)))


def _floored_within(node: Node, wide: Operands, *, saturating: int, most: float) -> relax.Expr:
    """Returns the result of `_floored`, with the first `saturating` elements limited to `most`."""
    shape = node.input(0).shape
    node.reserve(math.prod(shape) * np.dtype(np.float64).itemsize)
    limits = np.where(np.arange(math.prod(shape)) < saturating, most, np.inf).reshape(shape)
    return node.emit(relax.op.minimum(_floored(node, wide), relax.const(limits, "float64")), "within")


def div(node: Node) -> relax.Expr:
    return quantized(node, ops.div) if node.is_quantized else _truncated_div(node)


def _truncated_div(node: Node) -> relax.Expr:
    """Returns the quotient, rounded towards 0 and clamped (`Div` in reference/div.h)."""
    require_one_dtype(node)
    return clamped(node, _whole(node, _truncated), node.activation())


def floor_mod(node: Node) -> relax.Expr:
    """Converts FLOOR_MOD: the remainder of `floor_div`, with the divisor's sign (`FloorMod` in
    reference/floor_mod.h).
    """
    require_one_dtype(node)
    if node.output.dtype == "int64":
        return _int64_rest(node)
    return _real_rest(node) if node.output.dtype == "float32" else _whole(node, _rest)


def _real_rest(node: Node) -> relax.Expr:
    """Returns the remainder of float32 values, which C's fmod gives exactly, moved to the divisor's sign."""
    dividend, divisor = node.expr(0), node.expr(1)
    zero = relax.const(np.array(0, np.float32))
    rest = node.emit(relax.op.mod(dividend, divisor), "rest")
    signs = [node.emit(relax.op.less(x, zero), "negative") for x in (divisor, rest)]
    nonzero = node.emit(relax.op.logical_not(node.emit(relax.op.equal(rest, zero), "zero")), "nonzero")
    crossed = node.emit(relax.op.logical_and(nonzero, node.emit(relax.op.logical_xor(*signs), "differ")), "crossed")
    return node.emit(relax.op.where(crossed, node.emit(relax.op.add(rest, divisor), "moved"), rest))


def _int64_rest(node: Node) -> relax.Expr:
    """Returns the remainder of integers that float64 cannot represent. A divisor of 0 gives 0."""
    zero, one = (relax.const(np.array(value, np.int64), "int64") for value in (0, 1))
    by_zero = node.emit(relax.op.equal(node.expr(1), zero), "by_zero")
    divisor = node.emit(relax.op.where(by_zero, one, node.expr(1)), "divisor")
    rest = node.emit(relax.op.floor_mod(node.expr(0), divisor), "rest")
    return node.emit(relax.op.where(by_zero, zero, rest))


def _wide(node: Node) -> Operands:
    """Returns both operands in float64. float64 represents every int32 exactly, and every quotient of two int32 numbers
    precisely enough to round the quotient correctly.
    """
    dividend, divisor = (
        node.emit(relax.op.astype(x, "float64"), f"wide_{index}") for index, x in enumerate(node.exprs())
    )
    return dividend, divisor


def _floored(node: Node, wide: Operands) -> relax.Expr:
    return node.emit(relax.op.floor(node.emit(relax.op.divide(*wide), "quotient")), "floored")


def _rest(node: Node, wide: Operands) -> relax.Expr:
    product = node.emit(relax.op.multiply(_floored(node, wide), wide[1]), "product")
    return node.emit(relax.op.subtract(wide[0], product), "rest")


def _truncated(node: Node, wide: Operands) -> relax.Expr:
    """Returns the quotient truncated towards 0. The smallest number divided by -1 gives the largest number."""
    zero, most = (relax.const(np.array(value, np.float64), "float64") for value in (0, np.iinfo(np.int32).max))
    quotient = node.emit(relax.op.divide(*wide), "quotient")
    size = node.emit(relax.op.floor(node.emit(relax.op.abs(quotient), "size")), "floored")
    negative = node.emit(relax.op.less(quotient, zero), "negative")
    turned = node.emit(relax.op.negative(size), "turned")
    return node.emit(relax.op.where(negative, turned, node.emit(relax.op.minimum(size, most), "held")), "truncated")


def _whole(node: Node, divide: Callable[[Node, Operands], relax.Expr]) -> relax.Expr:
    """Returns a quotient as a whole number. The quotient is converted through 64 bits, so values that do not fit the
    output wrap around instead of raising an exception.
    """
    zero, one = (relax.const(np.array(value, np.float64), "float64") for value in (0, 1))
    dividend, divisor = _wide(node)
    by_zero = node.emit(relax.op.equal(divisor, zero), "by_zero")
    made = divide(node, (dividend, node.emit(relax.op.where(by_zero, one, divisor), "divisor")))
    kept = node.emit(relax.op.where(by_zero, zero, made), "kept")
    return node.emit(relax.op.astype(node.emit(relax.op.astype(kept, "int64"), "whole"), node.output.dtype))
