"""Conversions of 64-bit accumulators to 16-bit values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
from tvm import tirx

from service.compiler.qnn.expressions.ops import Value
from service.compiler.qnn.expressions.tensors import TensorOps, rounded_away, shift_count
from service.core.models.arrays import Array

_INT32_LIMIT = float(1 << 31)
_MOST_RIGHT = 46


@dataclass(frozen=True)
class Rescaling:
    """Converts accumulators, including the bias, to values that are not yet clamped."""

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays that the code reads, with one value, or one for each output channel."""
        raise NotImplementedError

    def express(self, ops: TensorOps, accumulator: Value, channels: Sequence[Value]) -> Value:
        """Returns int32 values.

        Args:
            accumulator: int64.
            channels: the values of the arrays for the accumulator's channel.
        """
        raise NotImplementedError

    def repeated(self, channels: int) -> Self:
        """Returns this rescaling with one value for each of `channels` channels."""
        arrays = {each.name: np.broadcast_to(getattr(self, each.name), channels) for each in fields(self)}
        return replace(self, **arrays)


@dataclass(frozen=True)
class Reduced(Rescaling):
    """Multiplies by an integer of 15 bits and shifts to the right. Halves are rounded up."""

    multipliers: Array
    counts: Array

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.multipliers, np.int64(1) << (self.counts - 1), self.counts

    def express(self, ops: TensorOps, accumulator: Value, channels: Sequence[Value]) -> Value:
        multiplier, half, count = channels
        if ops.lanes == 1:  # kernels do not need the limits, because LLVM compiles their programs as they are
            count = shift_count(count, "int64", 1, _MOST_RIGHT)
        return ops.cast((ops.cast(accumulator, "int64") * multiplier + half) >> count, "int32")


@dataclass(frozen=True)
class Double(Rescaling):
    """Multiplies by a float64 scale, and rounds halves away from zero. A product beyond 32 bits becomes the smallest
    integer.
    """

    scales: Array

    @property
    def arrays(self) -> tuple[Array, ...]:
        return (self.scales,)

    def express(self, ops: TensorOps, accumulator: Value, channels: Sequence[Value]) -> Value:
        rounded = rounded_away(ops.cast(accumulator, "float64") * channels[0], "float64")
        limit = ops.const(_INT32_LIMIT, "float64")
        return ops.cast(tirx.Select(rounded >= limit, -limit, tirx.max(rounded, -limit)), "int32")
