"""POW, SQUARE, SIGN and ATAN2, which LiteRT computes with the C library's functions."""

from __future__ import annotations

import math
from typing import cast

import numpy as np
from tvm import relax

from service.compiler.importers.real import Real, Wide, softmax
from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.elementwise import require_one_dtype


def square(node: Node) -> relax.Expr:
    return node.emit(relax.op.multiply(node.expr(0), node.expr(0)))


def sign(node: Node) -> relax.Expr:
    """Returns -1, 0 or 1; NaN for NaN."""
    x, dtype = node.expr(0), node.output.dtype
    zero, one, minus = (relax.const(np.array(value, dtype), dtype) for value in (0, 1, -1))
    below = node.emit(relax.op.where(node.emit(relax.op.less(x, zero), "negative"), minus, zero), "below")
    made = node.emit(relax.op.where(node.emit(relax.op.greater(x, zero), "positive"), one, below), "sign")
    return (
        node.emit(relax.op.where(node.emit(relax.op.equal(x, x), "ordered"), made, x)) if dtype == "float32" else made
    )


def log_softmax(node: Node) -> relax.Expr:
    """Converts LOG_SOFTMAX, over the last axis."""
    shape = node.input(0).shape
    node.require(bool(shape), "has a scalar input", node.input(0))
    return node.emit(softmax(Real(node.emit, node.expr(0)), len(shape) - 1, logarithm=True))


def power(node: Node) -> relax.Expr:
    """Converts POW, which is computed in float64. An integer power that int32 cannot represent becomes the smallest
    int32, as x86 processors convert it. LiteRT's call fails if an integer has a negative exponent (`CheckValue` in
    tflite/kernels/pow.cc); here, the power is rounded towards 0.
    """
    require_one_dtype(node)
    real = Real(node.emit, node.expr(0))
    if node.output.dtype == "float32":
        return node.emit(real.in_float64(relax.op.power, node.expr(0), node.expr(1)))
    wide = real.apply(relax.op.power, *(real(relax.op.astype(node.expr(index), "float64")) for index in range(2)))
    bound = relax.const(2.0**31, "float64")
    fits = real.apply(relax.op.less, real.apply(relax.op.abs, wide), bound)
    return node.emit(
        relax.op.astype(real.apply(relax.op.where, fits, wide, relax.const(-(2.0**31), "float64")), "int32")
    )


def atan2(node: Node) -> relax.Expr:
    """Returns the angle of each point (x, y), from -pi to pi, in float64 and rounded once. The inputs are y and x. The
    sign of a zero counts, as C's atan2 defines.
    """
    require_one_dtype(node)
    wide = Wide(lambda expr, _: node.emit(expr, "wide"), node.expr(0))
    y, x = wide.x, wide.widened(node.expr(1))
    both = wide.apply(
        relax.op.logical_and, wide.apply(relax.op.isinf, x), wide.apply(relax.op.isinf, y)
    )  # the quotient of infinities is NaN, but that of their signs is right
    y, x = (wide.apply(relax.op.where, both, wide.apply(relax.op.sign, each), each) for each in (y, x))
    quotient = wide.apply(relax.op.divide, y, x)
    quotient = wide.apply(relax.op.where, wide.apply(relax.op.equal, y, 0.0), y, quotient)
    angle = wide.apply(relax.op.atan, quotient)
    turn = wide.apply(relax.op.where, _is_negative(wide, y), -math.pi, math.pi)
    turned = wide.apply(relax.op.add, angle, turn)
    result = wide.apply(relax.op.where, _is_negative(wide, x), turned, angle)
    return node.emit(relax.op.astype(result, "float32"))


def _is_negative(wide: Wide, x: relax.Expr) -> relax.Expr:
    """Returns true for negative values and for -0."""
    inverse = wide.apply(relax.op.divide, 1.0, x)
    signed = wide.apply(relax.op.where, wide.apply(relax.op.equal, x, 0.0), inverse, x)
    return wide.apply(relax.op.less, signed, 0.0)


def fake_quant(node: Node) -> relax.Expr:
    """Converts FAKE_QUANT: rounds values to those that a type of `num_bits` bits represents, of which one is 0
    (`NudgeQuantizationRange` and `FakeQuantizeArray` in reference/fake_quant.h).
    """
    low, high = (np.float32(cast(float, node.option(name))) for name in ("min", "max"))
    bits = node.int_option("num_bits")
    least, most = int(bool(node.option("narrow_range"))), (1 << bits) - 1 if 2 <= bits <= 16 else 0
    fits = most > least and low <= 0 <= high and low < high and math.isfinite(float(high - low))
    node.require(bool(fits), f"has the range {low} to {high} in {bits} bits")
    scale = np.float32((high - low) / np.float32(most - least))
    point = np.float32(least) - np.float32(low / scale)
    zero = int(np.clip(math.floor(float(point) + 0.5), least, most))
    bounds = [np.float32((each - zero) * scale) for each in (least, most)]
    real = Real(node.emit, node.expr(0))
    clamped = real.apply(relax.op.maximum, real.x, relax.const(bounds[0]))
    clamped = real.apply(relax.op.minimum, clamped, relax.const(bounds[1]))
    moved = real.apply(relax.op.subtract, clamped, relax.const(bounds[0]))
    steps = real.apply(relax.op.multiply, moved, relax.const(np.float32(1) / scale))
    whole = real.apply(relax.op.floor, steps)
    half = real.apply(relax.op.less, real.apply(relax.op.subtract, steps, whole), 0.5)
    rounded = real.apply(relax.op.where, half, whole, real.apply(relax.op.add, whole, 1.0))
    scaled = real.apply(relax.op.multiply, rounded, relax.const(scale))
    return node.emit(relax.op.add(scaled, relax.const(bounds[0])))
