"""Operators that reduce whole axes to one value: MEAN, SUM, REDUCE_MAX, REDUCE_MIN, ARG_MAX, ARG_MIN,
L2_NORMALIZATION.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.qnn import ops


def mean(node: Node) -> relax.Expr:
    """Converts MEAN; the axes are a constant and may be negative (`ResolveAxis` in
    tflite/kernels/internal/reference/reduce.h).
    """
    return _rescaled(node, ops.mean)


def sum_(node: Node) -> relax.Expr:
    return _rescaled(node, ops.sum_)


def _rescaled(node: Node, make: Callable[..., relax.Call]) -> relax.Expr:
    x, axes, keepdims = node.reduced()
    in_type, out_type = node.in_type(0), node.out_type()
    node.require(in_type.storage == out_type.storage, f"reads {in_type.storage}, but writes {out_type.storage}")
    return node.emit(make(x, in_type, out_type, axes=axes, keepdims=keepdims))


def reduce_max(node: Node) -> relax.Expr:
    return _extreme(node, relax.op.max)


def reduce_min(node: Node) -> relax.Expr:
    return _extreme(node, relax.op.min)


def reduce_prod(node: Node) -> relax.Expr:
    """Converts REDUCE_PROD: the product of integers that are not quantized, such as sizes."""
    x, axes, keepdims = node.reduced()
    return node.emit(relax.op.prod(x, axis=axes, keepdims=keepdims))


def _extreme(node: Node, make: Callable[..., relax.Call]) -> relax.Expr:
    """Returns the extreme of stored values. Input and output must have the same quantization (`EvalType` in
    tflite/kernels/reduce.cc).
    """
    x, axes, keepdims = node.reduced()
    if node.is_quantized:
        node.require_one_type(count=1)
    return node.emit(make(x, axis=axes, keepdims=keepdims))


def arg_max(node: Node) -> relax.Expr:
    return _place(node, relax.op.argmax)


def arg_min(node: Node) -> relax.Expr:
    return _place(node, relax.op.argmin)


def _place(node: Node, make: Callable[..., relax.Call]) -> relax.Expr:
    """Returns the position of the extreme element; of equal elements, the first (`ArgMinMax` in
    reference/arg_min_max.h).
    """
    axis = node.axis(node.scalar(1), len(node.input(0).shape))
    position = node.emit(make(node.expr(0), axis=axis, keepdims=False), "place")
    return position if node.output.dtype == "int64" else node.emit(relax.op.astype(position, node.output.dtype))


def l2_normalization(node: Node) -> relax.Expr:
    """Converts L2_NORMALIZATION, over the last axis. The output has scale 1/128, and its zero point is the middle of
    the storage range (tflite/kernels/l2norm.cc).
    """
    if node.activation() != "NONE":
        node.unsupported("has a fused activation, which its kernel refuses")
    return node.emit(ops.l2_normalize(node.expr(0), node.in_type(0), node.out_type()))
