"""Epilogues convert accumulators to stored values: they requantize, add a residual, clamp and pack.

Epilogues compute formulas of `qnn/numerics` on vectors. Numbers that differ between layers are constants of the kernel
and not part of its code, so that layers of one shape share one function. The code depends only on properties that
change the instructions, such as a left shift, or a product that can overflow int32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from tvm import tirx

from service.compiler.kernels.arithmetic.addition import Addition
from service.compiler.kernels.arithmetic.requantization import CENTRE, Requantization
from service.compiler.kernels.program import Buffer, Expr, load, splat
from service.compiler.kernels.vector.lanes import Lanes
from service.core.models.arrays import Array


@dataclass(frozen=True)
class Bounds:
    """The zero point and the bounds of a quantized type, as stored."""

    zero_point: int
    low: int = 0
    high: int = 255


@dataclass(frozen=True)
class WideEpilogue:
    """Converts accumulators to values of more than 8 bits: int32, int16 or real values.

    Attributes:
        dtype: int32, int16 or float32.
    """

    requantization: Requantization
    dtype: str

    @property
    def constants(self) -> tuple[Array, ...]:
        """The constants that the generated code reads."""
        return self.requantization.arrays


@dataclass(frozen=True)
class Epilogue:
    """Converts accumulators to bytes.

    Attributes:
        out: the bounds of the stored result.
        addition: the addition of a residual, if any.
        middle: the bounds of the layer's result before the addition.
    """

    dtype: ClassVar[str] = "uint8"

    requantization: Requantization
    out: Bounds
    addition: Addition | None = None
    middle: Bounds | None = None

    @property
    def parameters(self) -> Array:
        """The int32 numbers that the generated code reads."""
        numbers = [self.out.zero_point, self.out.low, self.out.high]
        if self.addition is not None and self.middle is not None:
            middle = self.middle
            numbers += [middle.low - middle.zero_point, middle.high - middle.zero_point, *self.addition.parameters]
        return np.array(numbers, np.int32)

    @property
    def constants(self) -> tuple[Array, ...]:
        """The constants that the generated code reads: the requantization's arrays, then `parameters`."""
        return *self.requantization.arrays, self.parameters

    def value(
        self, lanes: Lanes, accumulator: Expr, channels: tuple[Expr, ...], parameters: Buffer, residual: Expr | None
    ) -> Expr:
        """Returns the values of one pixel minus the output's zero point, not yet clamped."""
        if residual is None:
            return self.requantization.apply(lanes, accumulator, channels)
        if self.addition is None:
            return self.requantization.apply(lanes, accumulator, (*channels, residual))
        value = self.requantization.apply(lanes, accumulator, channels)
        low, high, *numbers = (
            splat(load(parameters, 3 + index, 1), lanes.isa.lanes) for index in range(2 + len(self.addition.parameters))
        )
        clamped = lanes.keep(tirx.max(tirx.min(value, high), low))
        return self.addition.apply(lanes, clamped, residual, tuple(numbers))

    def pack(self, lanes: Lanes, pixels: tuple[Expr, Expr, Expr, Expr], parameters: Buffer) -> Expr:
        """Packs the values of four pixels to one vector of clamped bytes."""
        if self.requantization.centred:
            return self._clamped(lanes.isa.pack_centred(pixels), lanes.isa.bytes, parameters)
        zero_point = tirx.Cast("int16", load(parameters, 0, 1)) if self.out.zero_point else None
        return self._clamped(lanes.isa.pack(pixels, zero_point), lanes.isa.bytes, parameters)

    def narrow(self, lanes: Lanes, value: Expr, parameters: Buffer) -> Expr:
        """Converts the values of one pixel to clamped bytes, one for each lane."""
        zero_point, low, high = (splat(load(parameters, index, 1), lanes.isa.lanes) for index in range(3))
        if self.requantization.centred:
            zero_point = lanes.const(CENTRE)
        # Values are first clamped to 16 bits, as in `Isa.pack`, so that adding the zero point cannot overflow.
        bounded = tirx.max(tirx.min(value, lanes.const((1 << 15) - 1)), lanes.const(-(1 << 15))) + zero_point
        return tirx.Cast(f"uint8x{lanes.isa.lanes}", tirx.max(tirx.min(bounded, high), low))

    def _clamped(self, packed: Expr, size: int, parameters: Buffer) -> Expr:
        if self.out.low > 0:
            packed = tirx.max(packed, splat(tirx.Cast("uint8", load(parameters, 1, 1)), size))
        if self.out.high < 255:
            packed = tirx.min(packed, splat(tirx.Cast("uint8", load(parameters, 2, 1)), size))
        return packed


AnyEpilogue = Epilogue | WideEpilogue
