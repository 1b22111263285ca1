"""Averages: compute the stored value from the sum of a window's stored bytes.

Each class here implements one formula of `qnn/numerics/pooling.py`, on vectors of int32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from tvm import tirx

from service.compiler.kernels.arithmetic.numerics import bounds
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layer import Window
from service.compiler.kernels.layout import BIAS
from service.compiler.kernels.program import Expr, splat
from service.compiler.kernels.vector.lanes import Lanes
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.onednn import FloatAveragePool
from service.compiler.qnn.numerics.onnxruntime import mlas
from service.compiler.qnn.numerics.pooling import AveragePool, FixedPointMean, FloatMean
from service.compiler.qnn.numerics.torch.aten import AdaptiveAverage, EvenAverage, reciprocal
from service.compiler.qnn.numerics.torch.decomposed import RealAverage
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array

_LARGEST_DIVIDEND = 1 << 22  # the limit of a dividend of `_quotient`
_LARGEST = 1 << 30  # the limit of a float that is rounded to int32, and of a sum


class Average(Protocol):
    """The computation of an average from the sum of a window.

    Attributes:
        parameters: the int32, float32 or float64 values that the generated code reads.
        dtype: the type of the sum.
    """

    dtype: str

    @property
    def parameters(self) -> Array: ...

    def finish(self, lanes: Lanes, accumulator: Expr, count: Expr, parameters: Callable[[int], Expr]) -> Expr:
        """Returns the value to store, int32 and not yet clamped, for the sum of `count` stored bytes in each lane.

        Args:
            parameters: a function from the index of a parameter to a vector with that parameter in every lane.
        """


@dataclass(frozen=True)
class FloatWindow:
    """`mlas.WindowAverage`: adds the real values in float32, one after another.

    Attributes:
        window: the number of elements of a window, which is the divisor if padding is counted. None if only the
            elements inside the image are counted.
    """

    scale: float
    zero_point: int
    out_scale: float
    out_zero_point: int
    bias: int
    window: int | None
    factor: float | None = None

    dtype = "float32"

    @property
    def parameters(self) -> Array:
        before, after = (0, self.out_zero_point + self.bias) if self.factor else (self.out_zero_point, self.bias)
        stored = self.zero_point + self.bias, before, after
        return np.array([self.scale, self.factor or self.out_scale, self.window or 0, *stored], np.float32)

    def add(self, lanes: Lanes, accumulator: Expr, stored: Expr, parameters: Callable[[int], Expr]) -> Expr:
        real = (tirx.Cast(f"float32x{lanes.isa.lanes}", stored) - parameters(3)) * parameters(0)
        return lanes.keep(lanes.rounded(real), "float32") + accumulator

    def finish(self, lanes: Lanes, accumulator: Expr, count: Expr, parameters: Callable[[int], Expr]) -> Expr:
        size = lanes.isa.lanes
        divisor = parameters(2) if self.window else splat(tirx.Cast("float32", count), size)
        mean = lanes.keep(accumulator / divisor, "float32")
        ratio = lanes.keep(mean * parameters(1) if self.factor else mean / parameters(1), "float32")
        moved = lanes.keep(ratio + parameters(4), "float32")
        return lanes.keep(lanes.isa.round_even(moved)) + tirx.Cast(f"int32x{size}", parameters(5))


@dataclass(frozen=True)
class ScaledMean:
    """`mlas.GlobalAverage`: subtracts all zero points from the sum, multiplies by a float32 factor, and rounds to
    even.
    """

    factor: float
    zero_points: int
    out_zero_point: int

    dtype = "int32"

    @property
    def parameters(self) -> Array:
        return np.array([self.factor, self.zero_points, self.out_zero_point], np.float64)

    def finish(self, lanes: Lanes, accumulator: Expr, count: Expr, parameters: Callable[[int], Expr]) -> Expr:
        size = lanes.isa.lanes
        centered = lanes.keep(accumulator - tirx.Cast(f"int32x{size}", parameters(1)))
        product = tirx.Cast(f"float32x{size}", centered) * tirx.Cast(f"float32x{size}", parameters(0))
        rounded = lanes.isa.round_even(lanes.keep(product, "float32"))
        return lanes.keep(rounded) + tirx.Cast(f"int32x{size}", parameters(2))


@dataclass(frozen=True)
class IntegerMean:
    """`AveragePool`: the integer mean of the model's values, with halves rounded away from zero.

    The kernel adds about half of the count to the sum of stored bytes, and divides with rounding down. If the sum of
    the model's values is positive, this rounds halves up. If the sum is zero or negative, halves must be rounded down,
    so the added number is smaller by one.

    Attributes:
        bias: the number that kernels add to a value to store it (`layout.BIAS`).
    """

    bias: int

    dtype = "int32"

    @property
    def parameters(self) -> Array:
        return np.zeros(1, np.int32)

    def finish(self, lanes: Lanes, accumulator: Expr, count: Expr, parameters: Callable[[int], Expr]) -> Expr:
        half, size = count >> tirx.const(1, "int32"), lanes.isa.lanes
        if self.bias == 0:
            return _quotient(lanes, lanes.keep(accumulator + splat(half, size)), count)
        positive = lanes.keep(accumulator) > splat(count * self.bias, size)
        nudge = tirx.Select(positive, splat(half, size), splat(count - tirx.const(1, "int32") - half, size))
        return _quotient(lanes, lanes.keep(accumulator + nudge), count)


def _quotient(lanes: Lanes, dividend: Expr, divisor: Expr) -> Expr:
    """Computes dividend / divisor, rounded down, with a float32 multiplication, for 0 <= dividend <
    `_LARGEST_DIVIDEND`.

    The product (dividend + 1/2) * (1 / divisor) is rounded towards zero. Its exact value differs from every integer by
    at least 1 / (2 * divisor). The float32 error of the product is less than 2**-23 * (dividend + 1/2) / divisor, which
    is smaller than this difference.
    """
    floating, size = f"float32x{lanes.isa.lanes}", lanes.isa.lanes
    reciprocal = tirx.const(1.0, "float32") / tirx.Cast("float32", divisor)
    product = (tirx.Cast(floating, dividend) + lanes.const(0.5, "float32")) * splat(reciprocal, size)
    return lanes.keep(tirx.Cast(f"int32x{size}", product))  # a cast rounds towards zero


@dataclass(frozen=True)
class FixedMean:
    """`FixedPointMean`: multiplies the sum by a 31-bit significand that includes 1 / count, and shifts it to the
    right.
    """

    significand: int
    right: int
    input_zero_point: int
    zero_point: int
    count: int

    dtype = "int32"

    @property
    def parameters(self) -> Array:
        return np.array([self.significand, self.right, self.count * self.input_zero_point, self.zero_point], np.int32)

    def finish(self, lanes: Lanes, accumulator: Expr, count: Expr, parameters: Callable[[int], Expr]) -> Expr:
        scaled = lanes.high_mul(lanes.keep(accumulator - parameters(2)), lanes.keep(parameters(0)))
        return lanes.divide_by_pot(scaled, lanes.keep(parameters(1))) + parameters(3)


@dataclass(frozen=True)
class RoundedMean:
    """`FloatMean`: multiplies by a float32 factor, rounds, adds a float32 bias, rounds, and rounds the result to even.

    The addition is computed in float64 and rounded to float32, which gives the same result as an addition in float32
    (Figueroa 1995: 53 >= 2 * 24 + 2 bits).
    """

    factor: float
    addend: float
    bias: int

    dtype = "int32"

    @property
    def parameters(self) -> Array:
        return np.array([self.factor, self.addend, self.bias], np.float64)

    def finish(self, lanes: Lanes, accumulator: Expr, count: Expr, parameters: Callable[[int], Expr]) -> Expr:
        size = lanes.isa.lanes
        bias = lanes.keep(tirx.Cast(f"int32x{size}", parameters(2)))
        real = accumulator - splat(count, size) * bias
        product = lanes.keep(
            tirx.Cast(f"float32x{size}", real) * tirx.Cast(f"float32x{size}", parameters(0)), "float32"
        )
        value = tirx.Cast(f"float64x{size}", product) + parameters(1)
        rounded = lanes.isa.round_even(lanes.keep(tirx.Cast(f"float32x{size}", value), "float32"))
        return rounded + bias


@dataclass(frozen=True)
class EvenMean:
    """`EvenAverage` and `FloatAveragePool`: the sum minus all zero points, times float(1 / count), rounded to even."""

    zero_point: int

    dtype = "int32"

    @property
    def parameters(self) -> Array:
        return np.array([self.zero_point], np.int32)

    def finish(self, lanes: Lanes, accumulator: Expr, count: Expr, parameters: Callable[[int], Expr]) -> Expr:
        size, zero_point = lanes.isa.lanes, parameters(0)
        reciprocal = splat(tirx.const(1.0, "float32") / tirx.Cast("float32", count), size)
        real = tirx.Cast(f"float32x{size}", accumulator - splat(count, size) * zero_point)
        return lanes.isa.round_even(lanes.keep(real * reciprocal, "float32")) + zero_point


@dataclass(frozen=True)
class FusedMean:
    """`AdaptiveAverage` on whole blocks of channels.

    The formula is (sum - count * zero_point) * factor + zero_point. The multiply-add is rounded once to float32, and
    its result is rounded to even.

    Attributes:
        stored: the stored zero point of the input.
    """

    factor: float
    zero_point: int
    stored: int

    dtype = "int32"

    @property
    def parameters(self) -> Array:
        return np.array([self.factor, self.zero_point, self.stored], np.float32)

    def finish(self, lanes: Lanes, accumulator: Expr, count: Expr, parameters: Callable[[int], Expr]) -> Expr:
        size = lanes.isa.lanes
        stored = lanes.keep(tirx.Cast(f"int32x{size}", parameters(2)))
        real = tirx.Cast(f"float32x{size}", accumulator - splat(count, size) * stored)
        rounded = lanes.isa.round_even(lanes.fused(real, parameters(0), parameters(1)))
        return lanes.keep(rounded) + (stored - tirx.Cast(f"int32x{size}", parameters(1)))


def average_of(mode: Mode, operation: Operation) -> Average:
    """Returns the averaging formula of `mode` for `qnn.avg_pool2d`.

    Raises:
        Declined: no kernel computes this formula.
    """
    formula = mode.formula(operation)
    rows, columns = operation.ints("pool_size", 2, 1)
    in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
    if isinstance(formula, mlas.WindowAverage):
        if 256 * in_type.scale / out_type.scale >= _LARGEST:
            raise Declined("its scaled values may not fit the int32 that kernels round to")
        window = rows * columns if operation.flag("count_include_pad") else None
        types = in_type.scale, in_type.zero_point, out_type.scale, out_type.zero_point
        factor = float(reciprocal(out_type)) if isinstance(formula, RealAverage) else None
        return FloatWindow(*types, BIAS[in_type.storage], window, factor)
    if isinstance(formula, FloatAveragePool) and 256 * rows * columns < _LARGEST:
        return EvenMean(bounds(operation.per_tensor("in_type")).zero_point)
    if 256 * rows * columns >= _LARGEST_DIVIDEND:
        raise Declined(f"a window of {rows * columns} elements is too large")
    if isinstance(formula, AdaptiveAverage):
        if not formula.fused(operation.tensor(0)[0][-1]).all():
            raise Declined("its last channels, which do not fill a vector, are rounded in another way")
        scale, _ = formula.parameters(operation)
        return FusedMean(float(scale), in_type.zero_point, in_type.zero_point + BIAS[in_type.storage])
    if isinstance(formula, EvenAverage):
        # If a mean is halfway between two integers, the result depends on the rounding error of 1 / count, and on
        # whether the zero point is even.
        centres = formula.centres(operation, operation.tensor(0)[0][-1])
        if (centres != centres[0]).any():
            raise Declined("its last channels, which do not fill a vector, are rounded in another way")
        return EvenMean(int(centres[0]) + BIAS[in_type.storage])
    if not isinstance(formula, AveragePool):
        raise Declined(f"no kernel computes {formula.summary}")
    return IntegerMean(BIAS[in_type.storage])


def mean_of(mode: Mode, operation: Operation) -> Average:
    """Returns the formula of `mode` for the mean over an image.

    Raises:
        Declined: no kernel computes this formula, or the mean is not over rows and columns.
    """
    shape, _ = operation.tensor(0)
    if len(shape) != 4 or [int(axis) for axis in operation.attr("axes")] != [1, 2]:
        raise Declined("it is not the mean over rows and columns")
    count = shape[1] * shape[2]
    if 256 * count >= _LARGEST:
        raise Declined(f"an image of {count} elements is too large")
    formula, in_type = mode.formula(operation), operation.per_tensor("in_type")
    if isinstance(formula, FloatMean):
        factor, addend = formula.parameters(operation, count)
        if 256 * count * abs(factor) + abs(addend) >= _LARGEST:
            raise Declined("its scaled values may not fit the int32 that kernels round to")
        return RoundedMean(float(factor), float(addend), BIAS[in_type.storage])
    if isinstance(formula, mlas.GlobalAverage):
        factor, zero_point = formula.factor(operation, count), bounds(operation.per_tensor("out_type")).zero_point
        if 256 * count * factor >= _LARGEST:
            raise Declined("its scaled values may not fit the int32 that kernels round to")
        return ScaledMean(float(factor), count * bounds(in_type).zero_point, zero_point)
    if isinstance(formula, FixedPointMean):
        significand, shift = formula.multiplier(operation, count)
        if shift >= 0:
            raise Declined("its scale is 1/2 or more, which no kernel supports")
        zero_point = bounds(operation.per_tensor("out_type")).zero_point
        return FixedMean(significand, -shift, bounds(in_type).zero_point, zero_point, count)
    raise Declined(f"no kernel computes {formula.summary}")


def pooling_window(operation: Operation) -> Window:
    """Returns the window of a `qnn.max_pool2d` or a `qnn.avg_pool2d`."""
    rows, columns = operation.ints("pool_size", 2, 1)
    down, right = operation.ints("strides", 2, 1)
    top, left, _, _ = operation.ints("padding", 4, 0)
    return Window((rows, columns), (down, right), (1, 1), (top, left))
