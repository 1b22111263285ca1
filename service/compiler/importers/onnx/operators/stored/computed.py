"""QuantizeLinear and DequantizeLinear whose scale or zero point is computed at run time. The dialect's types are
constant, so these are arithmetic on real values, with the steps of MLAS (mlas/lib/quantize.cpp).
"""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.file.schema import DTYPES
from service.compiler.importers.onnx.node import Node
from service.compiler.importers.real import Real

_STORAGES = ("int8", "uint8", "int16", "uint16")


def quantize(node: Node) -> relax.Var:
    """Returns round_even(clamp(x / scale)) + zero point."""
    named = DTYPES.get(node.attribute("output_dtype", 0), "uint8")
    dtype = node.dtype(2) if node.has(2) else named
    node.require_supported(dtype in _STORAGES, f"quantizes to {dtype} with a computed scale", node.name(0))
    real, limits = Real(node.emit, node.expr(0)), np.iinfo(dtype)
    ratio = real.apply(relax.op.divide, real.x, _parameter(node, 1))
    point: relax.Expr = relax.const(np.float32(0))
    if node.has(2):
        point = real(relax.op.astype(_parameter(node, 2), "float32"))
    low, high = (real.apply(relax.op.subtract, float(bound), point) for bound in (int(limits.min), int(limits.max)))
    bounded = real.apply(relax.op.minimum, real.apply(relax.op.maximum, ratio, low), high)
    stored = real.apply(relax.op.add, real(relax.op.round(bounded)), point)
    return node.emit(relax.op.astype(stored, dtype))


def dequantize(node: Node) -> relax.Var:
    """Returns float(x - zero point) * scale."""
    dtype = node.dtype(0)
    node.require_supported(dtype in (*_STORAGES, "int32"), f"dequantizes {dtype} with a computed scale", node.name(0))
    whole = node.emit(relax.op.astype(node.expr(0), "int32"), "whole")
    if node.has(2):
        point = node.emit(relax.op.astype(_parameter(node, 2), "int32"), "point")
        whole = node.emit(relax.op.subtract(whole, point), "moved")
    return node.emit(relax.op.multiply(node.emit(relax.op.astype(whole, "float32"), "real"), _parameter(node, 1)))


def _parameter(node: Node, index: int) -> relax.Expr:
    """Returns a scale or a zero point in the form in which it broadcasts to the first input."""
    shape, given, size = node.shape(0), node.shape(index), node.attribute("block_size", 0)
    node.require_supported(not size, "has blocks with a computed scale, which cannot be compiled", node.name(index))
    node.require(index != 1 or node.dtype(1) == "float32", f"has a scale of {node.dtype(1)}", node.name(1))
    if math.prod(given) == 1:
        return node.emit(relax.op.reshape(node.expr(index), [1] * len(shape)), "parameter")
    axis = node.axis(node.attribute("axis", 1), len(shape))
    node.require(given == shape[axis : axis + 1], f"has parameters {list(given)} for axis {axis} of {list(shape)}")
    extents = [size if each == axis else 1 for each, size in enumerate(shape)]
    return node.emit(relax.op.reshape(node.expr(index), extents), "parameter")
