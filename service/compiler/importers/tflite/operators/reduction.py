"""Operators that reduce whole axes to one value: MEAN, SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, ARG_MAX, ARG_MIN,
L2_NORMALIZATION.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.selection import sliced
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.numerics.scaling.fixed_point import quantize_multiplier

_MOST_FACTORS = 64  # limit of the elements of a product, each of which becomes some operators
_LARGEST_MULTIPLIER, _MOST_LEFT = 0x7FFF0000, 8  # MultiplyByQuantizedMultiplier of int64 (internal/common.cc)


def rescaled(make: Callable[..., relax.Call]) -> Callable[[Node], relax.Expr]:
    """Returns the converter of MEAN or SUM of stored values. The axes are a constant and may be negative (`ResolveAxis`
    in tflite/kernels/internal/reference/reduce.h).
    """

    def convert(node: Node) -> relax.Expr:
        x, axes, keepdims = node.reduced()
        if not node.is_quantized:
            return _of_integers(node, x, axes, keepdims, is_mean=make is ops.mean)
        in_type, out_type = node.stored_types()
        return node.emit(make(x, in_type, out_type, axes=axes, keepdims=keepdims))

    return convert


def _of_integers(node: Node, x: relax.Expr, axes: list[int], keepdims: bool, *, is_mean: bool) -> relax.Expr:
    """Returns the sum of integers in their own type, or their mean in 64 bits, rounded towards 0."""
    dtype = node.output.dtype
    node.require(node.input(0).dtype == dtype, f"reads {node.input(0).dtype}, but writes {dtype}")
    if not is_mean:
        return node.emit(relax.op.sum(x, axis=axes, keepdims=keepdims))
    count = math.prod(shape_of(x)[axis] for axis in axes)
    wide = x if dtype == "int64" else node.emit(relax.op.astype(x, "int64"), "wide")
    total = node.emit(relax.op.sum(wide, axis=axes, keepdims=keepdims), "total")
    zero, divisor = (relax.const(np.array(value, np.int64), "int64") for value in (0, count))
    quotient = node.emit(relax.op.floor_divide(node.emit(relax.op.abs(total), "size"), divisor), "quotient")
    negated = node.emit(relax.op.negative(quotient), "negated")
    mean = node.emit(relax.op.where(node.emit(relax.op.less(total, zero), "negative"), negated, quotient), "mean")
    return mean if dtype == "int64" else node.emit(relax.op.astype(mean, dtype))


def extreme(make: Callable[..., relax.Call]) -> Callable[[Node], relax.Expr]:
    """Returns the converter of an operator whose result is one of the stored values, or of REDUCE_PROD of integers.
    Quantized input and output must have the same quantization (`EvalType` in tflite/kernels/reduce.cc).
    """

    def convert(node: Node) -> relax.Expr:
        x, axes, keepdims = node.reduced()
        if node.is_quantized:
            node.require_one_type(count=1)
        return node.emit(make(x, axis=axes, keepdims=keepdims))

    return convert


def product(node: Node) -> relax.Expr:
    """Converts REDUCE_PROD. Quantized elements are multiplied one after the other, and every product is scaled by the
    n-th part of the whole scaling, with a multiplier of 15 bits (`QuantizedReduceProd` in reference/reduce.h).
    """
    if not node.is_quantized:
        return extreme(relax.op.prod)(node)
    x, axes, keepdims = node.reduced()
    in_type, out_type = node.stored_types()
    shape = shape_of(x)
    kept, count = [axis for axis in range(len(shape)) if axis not in axes], math.prod(shape[axis] for axis in axes)
    if count > _MOST_FACTORS:
        node.unsupported(f"multiplies {count} quantized elements; at most {_MOST_FACTORS} can be compiled")
    if count == 1 and in_type != out_type:
        node.unsupported("reduces axes of one element, which LiteRT's default kernel copies without scaling it")
    ordered = node.emit(relax.op.permute_dims(x, [*kept, *axes]), "ordered")
    rows = node.emit(relax.op.reshape(ordered, (math.prod(shape[axis] for axis in kept), count)), "rows")
    centered = node.emit(relax.op.subtract(_wide(node, rows), _int64(in_type.zero_point)), "centered")
    significand, shift = quantize_multiplier(in_type.scale / out_type.scale ** (1 / count))
    reduced = (significand + (1 << 15)) >> 16 if significand < _LARGEST_MULTIPLIER else 0x7FFF
    node.require(shift < _MOST_LEFT, f"scales each product by {in_type.scale}, more than its kernel can")
    total, right = sliced(node, centered, [0, 0], [shape_of(rows)[0], 1], "first"), 15 - shift
    for index in range(1, count + 1):
        if index < count:
            factor = sliced(node, centered, [0, index], [shape_of(rows)[0], index + 1], f"factor_{index}")
            total = node.emit(relax.op.multiply(total, factor), "product")
        scaled = node.emit(relax.op.multiply(total, _int64(reduced)), "scaled")
        lifted = node.emit(relax.op.add(scaled, _int64(1 << (right - 1))), "lifted")
        shifted = node.emit(relax.op.right_shift(lifted, _int64(right)), "shifted")
        total = _wide(node, node.emit(relax.op.astype(shifted, "int32"), "narrow"))
    stored = node.emit(relax.op.add(total, _int64(out_type.zero_point)), "stored")
    low = node.emit(relax.op.maximum(stored, _int64(out_type.min)), "low")
    bounded = node.emit(relax.op.astype(node.emit(relax.op.minimum(low, _int64(out_type.max)), "high"), out_type.dtype))
    sizes = [1 if axis in axes else size for axis, size in enumerate(shape) if keepdims or axis in kept]
    return node.emit(relax.op.reshape(bounded, sizes))


def _wide(node: Node, x: relax.Expr) -> relax.Expr:
    return node.emit(relax.op.astype(x, "int64"), "wide")


def _int64(value: int) -> relax.Constant:
    return relax.const(np.array(value, np.int64), "int64")


def of_bools(make: Callable[..., relax.Call]) -> Callable[[Node], relax.Expr]:
    """Returns the converter of REDUCE_ALL or REDUCE_ANY, which `make` computes on 0 and 1."""

    def convert(node: Node) -> relax.Expr:
        x, axes, keepdims = node.reduced()
        found = node.emit(make(_numbers(node, x), axis=axes, keepdims=keepdims), "found")
        return node.emit(relax.op.greater(found, relax.const(np.array(0, np.int8), "int8")))

    return convert


def _numbers(node: Node, x: relax.Expr) -> relax.Expr:
    """Returns `x`, with 0 and 1 for booleans, which TVM cannot order."""
    return node.emit(relax.op.astype(x, "int8"), "numbers") if str(x.ty.dtype) == "bool" else x


def place(make: Callable[..., relax.Call]) -> Callable[[Node], relax.Expr]:
    """Returns the converter to the position of the extreme element; of equal elements, the first (`ArgMinMax` in
    reference/arg_min_max.h).
    """

    def convert(node: Node) -> relax.Expr:
        axis, dtype = node.axis(node.scalar(1), len(node.input(0).shape)), node.output.dtype
        found = node.emit(make(_numbers(node, node.expr(0)), axis=axis, keepdims=False), "place")
        return found if dtype == "int64" else node.emit(relax.op.astype(found, dtype))

    return convert


def l2_normalization(node: Node) -> relax.Expr:
    """Converts L2_NORMALIZATION, over the last axis. The output has scale 1/128, and its zero point is the middle of
    the storage range (tflite/kernels/l2norm.cc).
    """
    if node.activation() != "NONE":
        node.unsupported("has a fused activation, which its kernel refuses")
    return node.emit(ops.l2_normalize(node.expr(0), node.in_type(0), node.out_type()))
