"""Operators that reduce whole axes to one value: MEAN, SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, ARG_MAX, ARG_MIN,
L2_NORMALIZATION.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.qnn import ops


def rescaled(make: Callable[..., relax.Call]) -> Callable[[Node], relax.Expr]:
    """Returns the converter of MEAN or SUM of stored values. The axes are a constant and may be negative (`ResolveAxis`
    in tflite/kernels/internal/reference/reduce.h).
    """

    def convert(node: Node) -> relax.Expr:
        x, axes, keepdims = node.reduced()
        in_type, out_type = node.stored_types()
        return node.emit(make(x, in_type, out_type, axes=axes, keepdims=keepdims))

    return convert


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


def place(make: Callable[..., relax.Call]) -> Callable[[Node], relax.Expr]:
    """Returns the converter to the position of the extreme element; of equal elements, the first (`ArgMinMax` in
    reference/arg_min_max.h).
    """

    def convert(node: Node) -> relax.Expr:
        axis, dtype = node.axis(node.scalar(1), len(node.input(0).shape)), node.output.dtype
        found = node.emit(make(node.expr(0), axis=axis, keepdims=False), "place")
        return found if dtype == "int64" else node.emit(relax.op.astype(found, dtype))

    return convert


def l2_normalization(node: Node) -> relax.Expr:
    """Converts L2_NORMALIZATION, over the last axis. The output has scale 1/128, and its zero point is the middle of
    the storage range (tflite/kernels/l2norm.cc).
    """
    if node.activation() != "NONE":
        node.unsupported("has a fused activation, which its kernel refuses")
    return node.emit(ops.l2_normalize(node.expr(0), node.in_type(0), node.out_type()))
