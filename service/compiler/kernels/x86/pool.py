"""Windows: maximum, average, and the mean of a whole image.

A window is clipped to the image: what is padded never wins and is not counted, whatever the halo holds. Where windows
cover the whole image, four pixels at a time are summed by one dot product with ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from tvm import tirx

from service.compiler.kernels.halo import fill_halo
from service.compiler.kernels.kernel import Array, Declined, Kernel
from service.compiler.kernels.layer import Window
from service.compiler.kernels.layout import BIAS, Image
from service.compiler.kernels.program import Expr, Program, load, splat
from service.compiler.kernels.x86.epilogue import Bounds, Lanes
from service.compiler.kernels.x86.isa import PIXELS, Isa
from service.compiler.kernels.x86.numerics import bounds
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.pooling import AveragePool, FixedPointMean, FloatMean
from service.compiler.qnn.operation import Operation

# A quotient of integers below 2**23 in float32 cannot round up to the next integer: it is 1 / divisor away from it.
_LARGEST_DIVIDEND = 1 << 23


def max_pool(isa: Isa, source: Image, destination: Image, operation: Operation, *, parallel: bool) -> Kernel:
    """`qnn.max_pool2d`: the largest stored value is the largest byte."""
    return _Pool(isa, source, destination, _window(operation), _Maximum(), _out(operation), parallel).kernel("max_pool")


def avg_pool(
    isa: Isa, source: Image, destination: Image, operation: Operation, mode: Mode, *, parallel: bool
) -> Kernel:
    """`qnn.avg_pool2d`.

    Raises:
        Declined: no kernel computes `mode`'s formula for it.
    """
    average = average_of(mode, operation)
    return _Pool(isa, source, destination, _window(operation), average, _out(operation), parallel).kernel("avg_pool")


def mean(isa: Isa, source: Image, destination: Image, operation: Operation, mode: Mode, *, parallel: bool) -> Kernel:
    """`qnn.mean` over rows and columns.

    Raises:
        Declined: no kernel computes `mode`'s formula for it, or it is over other axes.
    """
    window = Window((source.height, source.width))
    average = mean_of(mode, operation)
    return _Pool(isa, source, destination, window, average, _out(operation), parallel).kernel("mean")


class Reduction(Protocol):
    """What a window becomes.

    Attributes:
        parameters: int32 or float64 values that the code reads.
    """

    @property
    def parameters(self) -> Array: ...

    def finish(self, lanes: Lanes, total: Expr, count: Expr, parameters: Callable[[int], Expr]) -> Expr:
        """The sum of `count` stored bytes in each lane -> the value to store, not yet clamped, int32.

        Args:
            parameters: a number -> that parameter in every lane.
        """


@dataclass(frozen=True)
class _Average:
    """`AveragePool`: the integer mean of the real stored values, halves away from zero."""

    bias: int

    @property
    def parameters(self) -> Array:
        return np.array([self.bias], np.int32)

    def finish(self, lanes: Lanes, total: Expr, count: Expr, parameters: Callable[[int], Expr]) -> Expr:
        bias, number = parameters(0), lanes.keep(splat(count, lanes.isa.lanes))
        real = lanes.keep(total - bias * number)
        half = lanes.keep(number >> lanes.const(1))
        nudged = real + tirx.Select(real > lanes.const(0), half, lanes.const(0) - half)
        floating = f"float32x{lanes.isa.lanes}"
        quotient = tirx.Cast(floating, nudged) / tirx.Cast(floating, number)
        return lanes.keep(tirx.Cast(f"int32x{lanes.isa.lanes}", quotient)) + bias  # a cast truncates, as C's division


@dataclass(frozen=True)
class _FixedMean:
    """`FixedPointMean`: a 31-bit significand that holds 1 / count, and a shift to the right."""

    significand: int
    right: int
    input_zero_point: int
    zero_point: int
    count: int

    @property
    def parameters(self) -> Array:
        return np.array([self.significand, self.right, self.count * self.input_zero_point, self.zero_point], np.int32)

    def finish(self, lanes: Lanes, total: Expr, count: Expr, parameters: Callable[[int], Expr]) -> Expr:
        scaled = lanes.high_mul(lanes.keep(total - parameters(2)), lanes.keep(parameters(0)))
        return lanes.divide_by_pot(scaled, lanes.keep(parameters(1))) + parameters(3)


@dataclass(frozen=True)
class _FloatMean:
    """`FloatMean`: one float32 factor and one float32 bias, rounded apart, then to even.

    The sum is taken in float64 and rounded to float32, so that LLVM cannot join it to the product (`rounded_sum`).
    """

    factor: float
    addend: float
    bias: int

    @property
    def parameters(self) -> Array:
        return np.array([self.factor, self.addend, self.bias], np.float64)

    def finish(self, lanes: Lanes, total: Expr, count: Expr, parameters: Callable[[int], Expr]) -> Expr:
        size = lanes.isa.lanes
        bias = lanes.keep(tirx.Cast(f"int32x{size}", parameters(2)))
        real = total - splat(count, size) * bias
        product = lanes.keep(
            tirx.Cast(f"float32x{size}", real) * tirx.Cast(f"float32x{size}", parameters(0)), "float32"
        )
        value = tirx.Cast(f"float64x{size}", product) + parameters(1)
        rounded = lanes.isa.round_even(lanes.keep(tirx.Cast(f"float32x{size}", value), "float32"))
        return rounded + bias


@dataclass(frozen=True)
class _Maximum:
    """The largest byte; there is no sum to finish."""

    @property
    def parameters(self) -> Array:
        return np.zeros(1, np.int32)

    def finish(self, lanes: Lanes, total: Expr, count: Expr, parameters: Callable[[int], Expr]) -> Expr:
        return total


def average_of(mode: Mode, operation: Operation) -> Reduction:
    """What averages in `mode`.

    Raises:
        Declined: no kernel computes its formula.
    """
    formula = mode.formula(operation)
    rows, columns = operation.ints("pool_size", 2, 1)
    if not isinstance(formula, AveragePool):
        raise Declined(f"no kernel computes {formula.summary}")
    if 256 * rows * columns >= _LARGEST_DIVIDEND:
        raise Declined(f"a window of {rows * columns} elements is too large")
    return _Average(BIAS[operation.per_tensor("in_type").storage])


def mean_of(mode: Mode, operation: Operation) -> Reduction:
    """What takes the mean of an image in `mode`.

    Raises:
        Declined: no kernel computes its formula, or it is over other axes than rows and columns.
    """
    shape, _ = operation.tensor(0)
    if len(shape) != 4 or [int(axis) for axis in operation.attr("axes")] != [1, 2]:
        raise Declined("it is not the mean over rows and columns")
    count = shape[1] * shape[2]
    if 256 * count >= 1 << 30:
        raise Declined(f"an image of {count} elements is too large")
    formula, in_type = mode.formula(operation), operation.per_tensor("in_type")
    if isinstance(formula, FloatMean):
        factor, addend = formula.parameters(operation, count)
        return _FloatMean(float(factor), float(addend), BIAS[in_type.storage])
    if isinstance(formula, FixedPointMean):
        significand, shift = formula.multiplier(operation, count)
        if shift >= 0:
            raise Declined("its scale of 1 or more is not rounded twice")
        zero_point = bounds(operation.per_tensor("out_type")).zero_point
        return _FixedMean(significand, -shift, bounds(in_type).zero_point, zero_point, count)
    raise Declined(f"no kernel computes {formula.summary}")


def _window(operation: Operation) -> Window:
    rows, columns = operation.ints("pool_size", 2, 1)
    down, right = operation.ints("strides", 2, 1)
    top, left, _, _ = operation.ints("padding", 4, 0)
    return Window((rows, columns), (down, right), (1, 1), (top, left))


def _out(operation: Operation) -> Bounds:
    return bounds(operation.per_tensor("out_type"))


class _Pool:
    def __init__(
        self,
        isa: Isa,
        source: Image,
        destination: Image,
        window: Window,
        reduction: Reduction,
        out: Bounds,
        parallel: bool,
    ) -> None:
        self.isa, self.source, self.destination, self.window = isa, source, destination, window
        self.reduction, self.out, self.parallel = reduction, out, parallel
        self.whole = window.kernel == (source.height, source.width) and window.padding == (0, 0)
        self.whole = self.whole and not isinstance(reduction, _Maximum)

    def kernel(self, family: str) -> Kernel:
        """One item is one row of pixels of one block of channels."""
        program, destination = Program(), self.destination
        self.program, self.lanes = program, Lanes(program, self.isa)
        constants = [np.array([self.out.zero_point, self.out.low, self.out.high], np.int32), self.reduction.parameters]
        self.read = program.parameter("source", "uint8", self.source.size_bytes)
        if self.whole:
            constants.append(np.array(self.isa.word_order, np.int32))
        self.bounds, self.numbers, *self.word_order = (
            program.parameter(f"constant_{place}", str(array.dtype), array.size)
            for place, array in enumerate(constants)
        )
        self.written = program.parameter("destination", "uint8", destination.size_bytes)
        rows = destination.batch * destination.blocks * destination.height
        with program.loop(rows, "item", parallel=self.parallel and rows > 1) as item:
            plane, row = program.bind(item // destination.height), program.bind(item % destination.height)
            fill = tirx.Cast("uint8", load(self.bounds, 0, 1))
            fill_halo(program, self.isa.bytes, self.written, destination, fill, plane=plane, when=_is_zero(row))
            at = program.bind(plane * destination.plane + row * destination.row + destination.origin)
            start = program.bind(plane * self.source.plane + self.source.origin)
            with program.loop(destination.width, "column") as column:
                value = self._whole(start) if self.whole else self._pixel(start, row, column)
                program.store(self.written, at + column * destination.pixel, self._stored(value), self.isa.lanes)
        return Kernel(family, program.function(), tuple(constants), destination.size_bytes)

    def _stored(self, value: Expr) -> Expr:
        """An int32 value, clamped, as bytes."""
        low, high = (splat(load(self.bounds, place, 1), self.isa.lanes) for place in (1, 2))
        return tirx.Cast(f"uint8x{self.isa.lanes}", tirx.max(tirx.min(value, high), low))

    def _parameter(self, place: int) -> Expr:
        return splat(load(self.numbers, place, 1), self.isa.lanes)

    def _pixel(self, start: Expr, row: Expr, column: Expr) -> Expr:
        """What the window of one output pixel becomes."""
        (rows, columns), (down, right), (top, left) = self.window.kernel, self.window.strides, self.window.padding
        first_row, count_rows = self._clipped(row * down - top, rows, self.source.height, self._inside(0))
        first, count = self._clipped(column * right - left, columns, self.source.width, self._inside(1))
        maximum = isinstance(self.reduction, _Maximum)
        total = self.program.register("uint8" if maximum else "int32", self.isa.lanes)
        total.value = splat(tirx.const(0, "uint8" if maximum else "int32"), self.isa.lanes)
        with self.program.loop(count_rows, "kh") as kernel_row:
            line = self.program.bind(start + (first_row + kernel_row) * self.source.row + first * self.source.pixel)
            with self.program.loop(count, "kw") as kernel_column:
                at = line + kernel_column * self.source.pixel
                if maximum:
                    total.value = tirx.max(total.value, load(self.read, at, self.isa.lanes))
                else:
                    total.value = total.value + self.isa.widen(self.read, at)
        if maximum:
            return tirx.Cast(f"int32x{self.isa.lanes}", total.value)
        number = self.program.bind(count_rows * count)
        return self.reduction.finish(self.lanes, total.value, _int32(number), self._parameter)

    def _inside(self, axis: int) -> bool:
        """Whether no window reaches beyond the image."""
        size = (self.source.height, self.source.width)[axis]
        outputs = (self.destination.height, self.destination.width)[axis]
        reach = (outputs - 1) * self.window.strides[axis] + self.window.kernel[axis] - self.window.padding[axis]
        return self.window.padding[axis] == 0 and reach <= size

    def _clipped(self, first: Expr, extent: int, size: int, inside: bool) -> tuple[Expr, Expr]:
        """The first index of a window inside the image, and how many there are."""
        if inside:
            return self.program.bind(first), extent
        begin = self.program.bind(tirx.max(first, tirx.const(0, "int32")))
        end = tirx.min(first + extent, tirx.const(size, "int32"))
        return begin, self.program.bind(end - begin)

    def _whole(self, start: Expr) -> Expr:
        """The sum over a plane, finished."""
        source, isa, program = self.source, self.isa, self.program
        rows, columns = (1, source.height * source.width) if source.contiguous_rows else (source.height, source.width)
        total = program.register("int32", isa.lanes)
        total.value = self.lanes.const(0)
        (word_order,) = (self.lanes.keep(load(buffer, 0, isa.lanes)) for buffer in self.word_order)
        with program.loop(rows, "row") as row:
            line = program.bind(start + row * source.row)
            with program.loop(columns // PIXELS, "quad") as quad:
                pixels = isa.transpose(load(self.read, line + quad * isa.bytes, isa.bytes), word_order)
                total.value = isa.dot(total.value, isa.operand(program, pixels), isa.ones)
            rest = columns % PIXELS
            for pixel in range(columns - rest, columns):
                total.value = total.value + isa.widen(self.read, line + pixel * source.pixel)
        count = tirx.const(source.height * source.width, "int32")
        return self.reduction.finish(self.lanes, total.value, count, self._parameter)


def _int32(value: Expr) -> Expr:
    return tirx.const(value, "int32") if isinstance(value, int) else value


def _is_zero(value: Expr) -> Expr:
    return value == 0
