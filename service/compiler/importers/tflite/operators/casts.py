"""CAST: converts the stored elements to another type and ignores scales (`copyCast` in tflite/kernels/cast.cc).

A whole number loses its upper bits. A real value loses its fraction; a value outside the range of the type becomes the
nearest bound, and NaN becomes the upper bound.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.spectral import real_part

_WHOLE = ("int8", "uint8", "int16", "int32", "int64")
_SATURATED = ("int8", "uint8", "int16", "int32")  # types whose bounds float64 represents exactly


def cast(node: Node) -> relax.Expr:
    source, target = node.input(0).dtype, node.output.dtype
    if source == "complex64":
        node.require_supported(target == "float32", f"casts complex64 to {target}")
        return real_part(node)
    x = node.expr(0)
    if target == "bool" and source != "bool":
        # `not_equal` would be compiled to an ordered comparison, which is false for NaN. But NaN is true.
        zero = node.emit(relax.op.equal(x, relax.const(np.array(0, source), source)), "zero")
        return node.emit(relax.op.where(zero, relax.const(False), relax.const(True)))
    if source == "float16" and target in _WHOLE:
        source, x = "float32", node.emit(relax.op.astype(x, "float32"), "single")
    if source == "float32" and target in _SATURATED:
        return _saturated(node, x, target)
    if source == "float32" and target == "int64":
        return _int64(node, x)
    return node.emit(relax.op.astype(x, target))


def _saturated(node: Node, x: relax.Expr, target: str) -> relax.Expr:
    limits = np.iinfo(target)
    low, high = (relax.const(np.array(bound, np.float64), "float64") for bound in (limits.min, limits.max))
    wide = node.emit(relax.op.astype(x, "float64"), "wide")
    above = node.emit(relax.op.logical_not(node.emit(relax.op.less(wide, high), "inside")), "above")
    below = node.emit(relax.op.maximum(wide, low), "below")
    return node.emit(relax.op.astype(node.emit(relax.op.where(above, high, below), "bounded"), target))


def _int64(node: Node, x: relax.Expr) -> relax.Expr:
    """Returns int64, whose upper bound no real value represents."""
    bound = relax.const(np.array(2.0**63, np.float32))
    inside = [
        node.emit(relax.op.less(each, bound), "inside")
        for each in (x, node.emit(relax.op.negative(x), "negated"))  # NaN is not inside
    ]
    fits = node.emit(relax.op.logical_and(*inside), "fits")
    whole = node.emit(relax.op.astype(node.emit(relax.op.where(fits, x, _constant(0.0)), "bounded"), "int64"), "whole")
    limits = (relax.const(np.array(each, np.int64), "int64") for each in (np.iinfo("i8").min, np.iinfo("i8").max))
    below = node.emit(relax.op.less(x, _constant(0.0)), "below")
    return node.emit(relax.op.where(fits, whole, node.emit(relax.op.where(below, *limits), "limit")))


def _constant(value: float) -> relax.Constant:
    return relax.const(np.array(value, np.float32))
