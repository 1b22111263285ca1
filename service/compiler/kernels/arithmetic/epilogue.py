"""Epilogues convert accumulators to stored values: they requantize, add a residual, clamp and pack.

Epilogues compute formulas of `qnn/numerics` on vectors. Numbers that differ between layers are constants of the kernel
and not part of its code, so that layers of one shape share one function. The code depends only on properties that
change the instructions, such as a left shift, or a product that can overflow int32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from tvm import tirx

from service.compiler.kernels.program import Buffer, Expr, load, splat
from service.compiler.kernels.vector.lanes import Lanes
from service.compiler.qnn.expressions.ops import Ops, Value
from service.compiler.qnn.expressions.requantization import Requantization
from service.compiler.qnn.expressions.sums import Addition
from service.core.models.arrays import Array

CENTRE = 128  # the middle of an unsigned byte's range


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
    numbers: ClassVar[tuple[int, ...]] = ()

    @property
    def element(self) -> str:
        """The type of the results of `express`."""
        return self.dtype

    @property
    def constants(self) -> tuple[Array, ...]:
        """The constants that the generated code reads."""
        return self.requantization.arrays

    def express(
        self, ops: Ops, accumulator: Value, channels: Sequence[Value], residual: Value | None, numbers: Sequence[Value]
    ) -> Value:
        """Returns the converted accumulator. The arguments are those of `Epilogue.express`."""
        return self.requantization.express(ops, accumulator, channels)


@dataclass(frozen=True)
class Epilogue:
    """Converts accumulators to bytes.

    Attributes:
        out: the bounds of the stored result.
        addition: the addition of a residual, if any.
        middle: the bounds of the layer's result before the addition.
    """

    dtype: ClassVar[str] = "uint8"
    element: ClassVar[str] = "int32"  # the type of the results of `express`

    requantization: Requantization
    out: Bounds
    addition: Addition | None = None
    middle: Bounds | None = None

    @property
    def parameters(self) -> Array:
        """The int32 numbers that the generated code reads."""
        return np.array([self.out.zero_point, self.out.low, self.out.high, *self.numbers], np.int32)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The last `parameters`, which `express` reads: the bounds of the layer's result, and those of the addition."""
        if self.addition is None or self.middle is None:
            return ()
        middle = self.middle
        return middle.low - middle.zero_point, middle.high - middle.zero_point, *self.addition.parameters

    @property
    def constants(self) -> tuple[Array, ...]:
        """The constants that the generated code reads: the requantization's arrays, then `parameters`."""
        return *self.requantization.arrays, self.parameters

    def express(
        self, ops: Ops, accumulator: Value, channels: Sequence[Value], residual: Value | None, numbers: Sequence[Value]
    ) -> Value:
        """Returns the value minus the output's zero point, not yet clamped.

        Args:
            channels: the values of the requantization's arrays for the channel.
            residual: the stored residual, if the epilogue reads one.
            numbers: the values of `numbers`.
        """
        if residual is None:
            return self.requantization.express(ops, accumulator, channels)
        if self.addition is None:
            return self.requantization.express(ops, accumulator, (*channels, residual))
        value = self.requantization.express(ops, accumulator, channels)
        low, high, *rest = numbers
        return self.addition.express(ops, ops.keep(ops.max(ops.min(value, high), low)), residual, tuple(rest))

    def value(
        self, lanes: Lanes, accumulator: Expr, channels: tuple[Expr, ...], parameters: Buffer, residual: Expr | None
    ) -> Expr:
        """Returns `express` for a block of channels. Reads the numbers from `parameters`."""
        numbers = [splat(load(parameters, 3 + index, 1), lanes.isa.lanes) for index in range(len(self.numbers))]
        return self.express(lanes, accumulator, channels, residual, numbers)

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


def load_channels(
    lanes: Lanes, requantization: Requantization, buffers: Sequence[Buffer], offset: Expr
) -> tuple[Expr, ...]:
    """Loads the values of a requantization's arrays for the block of channels at `offset`."""
    return tuple(
        lanes.keep(load(buffer, offset, lanes.isa.lanes), str(array.dtype))
        for buffer, array in zip(buffers, requantization.arrays, strict=True)
    )
