"""Bilinear interpolation: formulas that blend four neighboring pixels, on vectors of int32.

Each class here implements one formula of `qnn/numerics/resize.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from tvm import tirx

from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layout import BIAS, Image
from service.compiler.kernels.program import Expr, bits
from service.compiler.kernels.vector.lanes import Lanes
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.resize import Bilinear, ByStorage, ElevenBits, Float, TenBits
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array


class Blend(Protocol):
    """Blends the stored values (int32) of four pixels: top left, top right, bottom left, bottom right."""

    def apply(self, lanes: Lanes, corners: Sequence[Expr], down: Expr, right: Expr) -> Expr:
        """Returns the value to store, int32. `down` and `right` are the distances from the first pixel, in every
        lane.
        """


class Eleventh(Blend):
    """`ElevenBits`, computed on stored bytes.

    If 128 is added to all four pixels, the result grows by exactly 128, because it is rounded down.
    """

    def apply(self, lanes: Lanes, corners: Sequence[Expr], down: Expr, right: Expr) -> Expr:
        a, b, c, d = corners
        count, half = lanes.const(11), lanes.const(1 << 21)
        top, bottom = (lanes.keep((x << count) + (y - x) * right) for x, y in ((a, b), (c, d)))
        return ((top << count) + (bottom - top) * down + half) >> lanes.const(22)


class Tenth(Blend):
    """`TenBits`, which rounds halves away from zero. For int8, stored values have 128 added, so this class subtracts
    128 first and adds it to the result.
    """

    def apply(self, lanes: Lanes, corners: Sequence[Expr], down: Expr, right: Expr) -> Expr:
        a, b, c, d = (lanes.keep(corner - lanes.const(BIAS["int8"])) for corner in corners)
        whole, zero = lanes.const(1 << 10), lanes.const(0)
        up, left = lanes.keep(whole - down), lanes.keep(whole - right)
        total = lanes.keep((a * up + c * down) * left + (b * up + d * down) * right)
        magnitude = lanes.keep((tirx.max(total, zero - total) + lanes.const(1 << 19)) >> lanes.const(20))
        return tirx.Select(total < zero, zero - magnitude, magnitude) + lanes.const(BIAS["int8"])


class Real(Blend):
    """`Float`: blends with float32 distances."""

    def apply(self, lanes: Lanes, corners: Sequence[Expr], down: Expr, right: Expr) -> Expr:
        floating = f"float32x{lanes.isa.lanes}"
        a, b, c, d = (lanes.keep(tirx.Cast(floating, corner), "float32") for corner in corners)
        down, right, one = bits(floating, down), bits(floating, right), lanes.const(1.0, "float32")
        up, left = lanes.keep(one - down, "float32"), lanes.keep(one - right, "float32")
        products = (a * up * left, c * down * left, b * up * right, d * down * right)
        first, *others = (lanes.keep(lanes.rounded(product), "float32") for product in products)
        for other in others:
            first = lanes.keep(first + other, "float32")
        return tirx.Cast(f"int32x{lanes.isa.lanes}", first + lanes.const(0.5, "float32"))


def blend_of(mode: Mode, operation: Operation) -> tuple[Bilinear, Blend]:
    """Returns the formula of a `qnn.resize_bilinear` in `mode`, and its implementation on vectors.

    Raises:
        Declined: no kernel computes this resize.
    """
    formula = mode.formula(operation)
    match formula.chosen(operation) if isinstance(formula, ByStorage) else formula:
        case ElevenBits() as bilinear:
            return bilinear, Eleventh()
        case TenBits() as bilinear:
            return bilinear, Tenth()
        case Float() as bilinear:
            return bilinear, Real()
    raise Declined(f"no kernel computes {formula.summary}")


def tables_of(formula: Bilinear, operation: Operation, source: Image) -> list[Array]:
    """Returns six tables, three for rows and three for columns: the byte offsets of both neighbors, and the distance.

    A float32 distance is returned as its bits.
    """
    tables: list[Array] = []
    for positions, step in zip(formula.axes(operation, source.shape), (source.row, source.pixel), strict=True):
        lower, upper, distance = positions
        real = distance.dtype.kind == "f"
        tables += [lower * step, upper * step, distance.astype(np.float32).view(np.int32) if real else distance]
    return [table.astype(np.int32) for table in tables]
