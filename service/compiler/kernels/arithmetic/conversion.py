"""Conversions between float32 values and stored bytes, on vectors of any width.

Quantization consists of the same steps as in the `lower` method of each mode's formula. NaN also gives the same result
as in that method.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import tirx

from service.compiler.kernels.arithmetic.numerics import bounds
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layout import BIAS
from service.compiler.kernels.program import Buffer, Expr, bits, intrinsic, load, splat
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.formula import rounded_away
from service.compiler.qnn.numerics.onednn import Reorder
from service.compiler.qnn.numerics.onnxruntime import mlas
from service.compiler.qnn.numerics.scaling.affine import Dequantize, Quantize, int32_bound
from service.compiler.qnn.numerics.torch.aten import FusedQuantize
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array

_FAR = float(1 << 30)  # beyond all stored values
_ROUNDING = 1.5 * 2**23  # added to a small float32, gives a sum whose lowest bits are the value rounded to even
_ROUNDING_BITS = int(np.float32(_ROUNDING).view(np.int32))


@dataclass(frozen=True)
class Quantization:
    """Converts float32 to stored bytes.

    Attributes:
        factor: the number by which values are multiplied, or divided if `divides`.
        least, largest: scaled values are clamped to this range before they are rounded.
        zero_point, low, high: the zero point and the bounds of the result, as stored.
        first_zero_point: the part of the zero point that a fused multiply-add adds before rounding; None if the whole
            zero point is added after rounding.
        divides: true to divide by the factor instead of multiplying.
        away: true to round halves away from zero, false to round them to even.
        nan_is_low: true if NaN becomes the lowest value, false if it becomes the highest.
        limit: scaled values of at least `limit` or below `-limit`, and NaN, become `overflow`. None if the mode clamps
            such values instead.
        overflow: the value that replaces these scaled values. It is below `least` or above `largest`.
    """

    factor: float
    least: float
    largest: float
    zero_point: int
    low: int
    high: int
    first_zero_point: int | None = None
    divides: bool = False
    away: bool = False
    nan_is_low: bool = False
    limit: float | None = None
    overflow: float = 0.0

    @property
    def numbers(self) -> Array:
        """The int32 constants that the generated code reads."""
        floats = np.array([self.factor, self.least, self.largest, self.first_zero_point or 0], np.float32)
        zero_point = self.zero_point - _ROUNDING_BITS if self.is_within else self.zero_point
        limits = np.array([] if self.limit is None else [self.limit, self.overflow], np.float32).view(np.int32)
        return np.concatenate([floats.view(np.int32), np.array([zero_point, self.low, self.high], np.int32), limits])

    @property
    def is_within(self) -> bool:
        """True if clamped values are so small that `_ROUNDING` can round them to even."""
        return max(-self.least, self.largest) < _FAR and not self.away

    def apply(self, numbers: Buffer, vector: Expr, lanes: int) -> Expr:
        factor, least, largest, addend = (
            bits(_vector("float32", lanes), _number(numbers, position, lanes)) for position in range(4)
        )
        zero_point, low, high = (_number(numbers, 4 + position, lanes) for position in range(3))
        # Comparisons with NaN are false. So NaN becomes the bound that it is compared with first.
        ratio = self._ratio(vector, factor, addend, lanes)
        if self.limit is not None:
            limit, overflow = (
                bits(_vector("float32", lanes), _number(numbers, position, lanes)) for position in (7, 8)
            )
            ratio = tirx.Select(ratio < limit, tirx.Select(-limit < ratio, ratio, overflow), overflow)
        if self.nan_is_low:
            bounded = tirx.min(tirx.max(ratio, least), largest)
        else:
            bounded = tirx.max(tirx.min(ratio, largest), least)
        if self.is_within:
            moved = bits(_vector("int32", lanes), bounded + _splat(tirx.const(_ROUNDING, "float32"), lanes))
            return tirx.Cast(_vector("uint8", lanes), moved + zero_point)
        rounded = rounded_away(bounded) if self.away else tirx.nearbyint(bounded)
        whole = tirx.Cast(_vector("int32", lanes), rounded) + zero_point
        return tirx.Cast(_vector("uint8", lanes), tirx.max(tirx.min(whole, high), low))

    def _ratio(self, vector: Expr, factor: Expr, addend: Expr, lanes: int) -> Expr:
        if self.first_zero_point is None:
            return vector / factor if self.divides else vector * factor
        return intrinsic(_vector("float32", lanes), "llvm.fma", vector, factor, addend)


@dataclass(frozen=True)
class Dequantization:
    """`Dequantize`: converts stored bytes to float32."""

    scale: float
    zero_point: int

    @property
    def numbers(self) -> Array:
        """The int32 constants that the generated code reads."""
        return np.array([np.array(self.scale, np.float32).view(np.int32), self.zero_point], np.int32)

    def apply(self, numbers: Buffer, vector: Expr, lanes: int) -> Expr:
        scale, zero_point = bits(_vector("float32", lanes), _number(numbers, 0, lanes)), _number(numbers, 1, lanes)
        centered = tirx.Cast(_vector("int32", lanes), vector) - zero_point
        return tirx.Cast(_vector("float32", lanes), centered) * scale


def quantization_of(mode: Mode, operation: Operation) -> Quantization:
    """Returns the kernel arithmetic of a `qnn.quantize` in `mode`.

    Raises:
        Declined: no kernel computes the mode's formula, or the type is not 8 bits with one scale.
    """
    formula, kind = mode.formula(operation), operation.quantized("out_type")
    stored = bounds(kind)
    ends = stored.zero_point, stored.low, stored.high
    scale = np.float32(kind.scale)
    if isinstance(formula, Quantize) and formula.reciprocal:
        return Quantization(float(np.float32(1) / scale), -_FAR, _FAR, *ends)
    if isinstance(formula, Quantize):
        if not formula.overflows:
            return Quantization(float(scale), -_FAR, _FAR, *ends, divides=True, away=True)
        limit, overflow = int32_bound(kind), _FAR if kind.zero_point < 0 else -_FAR
        return Quantization(float(scale), -_FAR, _FAR, *ends, divides=True, away=True, limit=limit, overflow=overflow)
    if isinstance(formula, Reorder):
        return Quantization(formula.factors(kind)[0], -_FAR, _FAR, *ends)
    if isinstance(formula, mlas.Quantize):
        limits = float(kind.min - kind.zero_point), float(kind.max - kind.zero_point)
        return Quantization(float(scale), *limits, *ends, divides=True, nan_is_low=True)
    if isinstance(formula, FusedQuantize):
        moved = BIAS[kind.storage], stored.low, stored.high
        return Quantization(float(np.float32(1) / scale), -_FAR, _FAR, *moved, first_zero_point=kind.zero_point)
    raise Declined(f"no kernel computes {formula.summary}")


def dequantization_of(mode: Mode, operation: Operation) -> Dequantization:
    """Returns the kernel arithmetic of a `qnn.dequantize` in `mode`. Raises the errors of `quantization_of`."""
    formula, kind = mode.formula(operation), operation.quantized("in_type")
    if not isinstance(formula, Dequantize):
        raise Declined(f"no kernel computes {formula.summary}")
    return Dequantization(kind.scale, bounds(kind).zero_point)


def _number(numbers: Buffer, index: int, lanes: int) -> Expr:
    return _splat(load(numbers, index, 1), lanes)


def _splat(value: Expr, lanes: int) -> Expr:
    return splat(value, lanes) if lanes > 1 else value


def _vector(name: str, lanes: int) -> str:
    return f"{name}x{lanes}" if lanes > 1 else name
