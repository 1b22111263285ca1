"""Maximum and average pooling, and the mean of a whole image.

A window is clipped to the image. So padding is never the maximum and never part of a sum, and the contents of the halo
do not matter. If the stride is 1, outputs whose windows are not clipped are computed four at a time, and the few
outputs at the edges one at a time. If a window covers the whole image, a dot product with weights of 1 sums four pixels
at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import tirx

from service.compiler.kernels.arithmetic.average import average_of, mean_of, pooling_window
from service.compiler.kernels.arithmetic.epilogue import Bounds
from service.compiler.kernels.arithmetic.numerics import bounds
from service.compiler.kernels.halo import fill_halo
from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.layer import Window
from service.compiler.kernels.layout import Image
from service.compiler.kernels.program import Expr, Program, at_most, index, load, shuffle, splat
from service.compiler.kernels.vector.isa import PIXELS, Isa
from service.compiler.kernels.vector.lanes import Lanes
from service.compiler.qnn.expressions.averages import Average
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.operation import Operation

_MOST_IN_WORDS = (1 << 16) // 256  # the number of bytes whose sum always fits 16 bits


def max_pool(isa: Isa, source: Image, destination: Image, operation: Operation, *, parallel: bool) -> Kernel:
    """Returns the kernel of a `qnn.max_pool2d`. The largest value is the largest stored byte."""
    return _Pool(isa, source, destination, pooling_window(operation), None, _out(operation), parallel).kernel(
        "max_pool"
    )


def avg_pool(
    isa: Isa, source: Image, destination: Image, operation: Operation, mode: Mode, *, parallel: bool
) -> Kernel:
    """Returns the kernel of a `qnn.avg_pool2d`.

    Raises:
        Declined: no kernel computes `mode`'s formula for the operator.
    """
    average = average_of(mode, operation)
    return _Pool(isa, source, destination, pooling_window(operation), average, _out(operation), parallel).kernel(
        "avg_pool"
    )


def mean(isa: Isa, source: Image, destination: Image, operation: Operation, mode: Mode, *, parallel: bool) -> Kernel:
    """Returns the kernel of a `qnn.mean` over rows and columns.

    Raises:
        Declined: no kernel computes `mode`'s formula for the operator, or the mean is not over rows and columns.
    """
    window = Window((source.height, source.width))
    average = mean_of(mode, operation)
    return _Pool(isa, source, destination, window, average, _out(operation), parallel).kernel("mean")


def _out(operation: Operation) -> Bounds:
    return bounds(operation.per_tensor("out_type"))


@dataclass(frozen=True)
class _Run:
    """Neighboring outputs of a row whose clipped windows have equal widths.

    Attributes:
        first: the first output.
        count: the number of outputs.
        begin: the first column of the first output's window.
        extent: the number of columns of a window that are inside the image.
    """

    first: int
    count: int
    begin: int
    extent: int


class _Pool:
    """Builds a pooling kernel. If `average` is None, the kernel computes the maximum."""

    def __init__(
        self,
        isa: Isa,
        source: Image,
        destination: Image,
        window: Window,
        average: Average | None,
        out: Bounds,
        parallel: bool,
    ) -> None:
        self.isa, self.source, self.destination, self.window = isa, source, destination, window
        self.average, self.out, self.parallel = average, out, parallel
        whole = window.kernel == (source.height, source.width) and window.padding == (0, 0)
        summed = average is not None and average.dtype == "int32"
        self.whole = summed and whole and (destination.height, destination.width) == (1, 1)
        self.constants = [np.array([out.zero_point, out.low, out.high], np.int32), isa.transpose_indices]
        self.constants += [] if average is None else [np.array(average.parameters, np.int32)]

    def kernel(self, family: str) -> Kernel:
        """Returns the kernel. Each iteration of the parallel loop computes one row of one channel block."""
        program, destination = Program(), self.destination
        self.program, self.lanes = program, Lanes(program, self.isa)
        self.read = program.parameter("source", "uint8", self.source.size_bytes)
        self.limits, self.transpose_indices, *self.numbers = (
            program.parameter(f"constant_{position}", str(array.dtype), array.size)
            for position, array in enumerate(self.constants)
        )
        self.written = program.parameter("destination", "uint8", destination.size_bytes)
        rows = destination.batch * destination.blocks * destination.height
        with program.loop(rows, "item", parallel=self.parallel) as item:
            plane, row = program.bind(item // destination.height), program.bind(item % destination.height)
            fill = tirx.Cast("uint8", load(self.limits, 0, 1))
            fill_halo(program, self.isa.bytes, self.written, destination, fill, plane=plane, when=row == 0)
            at = program.bind(destination.plane_start(plane) + row * destination.row + destination.margin)
            start = program.bind(self.source.plane_start(plane) + self.source.margin)
            if self.whole:
                program.store(self.written, at, self._whole(start), self.isa.lanes)
            else:
                self._row(at, start, row)
        return Kernel(family, program.function(), tuple(self.constants), destination.size_bytes)

    def _row(self, at: Expr, start: Expr, row: Expr) -> None:
        """Computes one row of the output, which begins at byte `at`."""
        program, (rows, _), (down, right) = self.program, self.window.kernel, self.window.strides
        begin, count = self._rows_inside(row * down - self.window.padding[0], rows)
        line = program.bind(start + begin * self.source.row)
        for run in self._runs():
            four = right == 1 and run.count >= PIXELS and self._fits_words(rows * run.extent)
            width = PIXELS if four else 1
            with program.loop(-(-run.count // width), "column") as step:
                column = program.bind(at_most(step * width, run.count - width))
                corner = program.bind(line + (column * right + run.begin) * self.source.pixel)
                to = at + (column + run.first) * self.destination.pixel
                if four:
                    program.store(self.written, to, self._four(corner, count, run.extent), self.isa.bytes)
                else:
                    program.store(self.written, to, self._one(corner, count, run.extent), self.isa.lanes)

    def _fits_words(self, elements: int) -> bool:
        """Returns true if four outputs with windows of `elements` elements can be computed at a time.

        For an average, the sum of a window must fit 16 bits.
        """
        if self.average is None:
            return True
        return self.average.dtype == "int32" and elements < _MOST_IN_WORDS

    def _rows_inside(self, first: Expr, extent: int) -> tuple[Expr, Expr]:
        """Returns the first row of a window that is inside the image, and the number of its rows that are inside."""
        source, window = self.source, self.window
        reach = (self.destination.height - 1) * window.strides[0] - window.padding[0] + extent
        if window.padding[0] == 0 and reach <= source.height:
            return first, extent
        begin = self.program.bind(tirx.max(index(first), index(0)))
        return begin, self.program.bind(tirx.min(index(first + extent), index(source.height)) - begin)

    def _runs(self) -> list[_Run]:
        """Divides the outputs of a row into runs with windows of equal width."""
        (_, extent), (_, stride), (_, left) = self.window.kernel, self.window.strides, self.window.padding
        runs: list[_Run] = []
        for column in range(self.destination.width):
            begin = column * stride - left
            inside = range(max(begin, 0), min(begin + extent, self.source.width))
            whole = len(inside) == extent
            if whole and runs and runs[-1].extent == extent:
                runs[-1] = _Run(runs[-1].first, runs[-1].count + 1, runs[-1].begin, extent)
            else:
                runs.append(_Run(column, 1, inside.start, len(inside)))
        return runs

    def _one(self, corner: Expr, rows: Expr, columns: int) -> Expr:
        """Computes one block of one output pixel from its window, as bytes."""
        isa, pixel = self.isa, self.source.pixel
        if self.average is None:
            return self._largest(corner, rows, columns, isa.lanes)
        accumulator = self.program.register(self.average.dtype, isa.lanes)
        accumulator.value = self.lanes.const(0, self.average.dtype)
        with self.program.loop(rows, "kh") as row, self.program.loop(columns, "kw") as column:
            stored = self.lanes.widen(self.read, corner + row * self.source.row + column * pixel)
            accumulator.value = self.average.add(self.lanes, accumulator.value, stored, self._parameters())
        return tirx.Cast(f"uint8x{isa.lanes}", self._bounded(self._finished(accumulator.value, rows * columns)))

    def _four(self, corner: Expr, rows: Expr, columns: int) -> Expr:
        """Computes one block of four neighboring output pixels, whose windows are one pixel apart, as bytes."""
        isa, size, pixel = self.isa, 2 * self.isa.lanes, self.source.pixel
        if self.average is None:
            return self._largest(corner, rows, columns, isa.bytes)
        accumulators = [self.program.register("uint16", size) for _ in range(PIXELS // 2)]
        for accumulator in accumulators:
            accumulator.value = splat(tirx.const(0, "uint16"), size)
        with self.program.loop(rows, "kh") as row, self.program.loop(columns, "kw") as column:
            at = self.program.bind(corner + row * self.source.row + column * pixel)
            for position, accumulator in enumerate(accumulators):
                accumulator.value = accumulator.value + tirx.Cast(
                    f"uint16x{size}", load(self.read, at + position * size, size)
                )
        halves = (range(isa.lanes), range(isa.lanes, size))
        sums = [shuffle(accumulator.value, half) for accumulator in accumulators for half in halves]
        wide = [tirx.Cast(f"int32x{isa.lanes}", part) for part in sums]
        first, second, third, fourth = (self._finished(accumulator, rows * columns) for accumulator in wide)
        return self._clamped(isa.pack((first, second, third, fourth), None), isa.bytes)

    def _largest(self, corner: Expr, rows: Expr, columns: int, size: int) -> Expr:
        largest = self.program.register("uint8", size)
        largest.value = splat(tirx.const(0, "uint8"), size)
        with self.program.loop(rows, "kh") as row, self.program.loop(columns, "kw") as column:
            at = corner + row * self.source.row + column * self.source.pixel
            largest.value = tirx.max(largest.value, load(self.read, at, size))
        return self._clamped(largest.value, size)

    def _whole(self, start: Expr) -> Expr:
        """Computes the average of a whole plane, as bytes."""
        source, isa, program = self.source, self.isa, self.program
        rows, columns = (1, source.height * source.width) if source.contiguous_rows else (source.height, source.width)
        accumulator = program.register("int32", isa.lanes)
        accumulator.value = self.lanes.const(rows * (columns // PIXELS) * PIXELS * isa.operand_zero_point)
        indices = self.lanes.keep(load(self.transpose_indices, 0, isa.lanes))
        with program.loop(rows, "row") as row:
            line = program.bind(start + row * source.row)
            with program.loop(columns // PIXELS, "quad") as quad:
                pixels = isa.transposed(program, load(self.read, line + quad * isa.bytes, isa.bytes), indices)
                accumulator.value = isa.dot(accumulator.value, pixels, isa.ones)
            for pixel in range(columns - columns % PIXELS, columns):
                accumulator.value = accumulator.value + self.lanes.widen(self.read, line + pixel * source.pixel)
        mean = self._finished(accumulator.value, source.height * source.width)
        return tirx.Cast(f"uint8x{isa.lanes}", self._bounded(mean))

    def _finished(self, accumulator: Expr, count: Expr) -> Expr:
        assert self.average is not None
        return self.average.express(self.lanes, accumulator, index(count), self._parameters())

    def _parameters(self) -> list[Expr]:
        """Loads each of the average's parameters into every lane."""
        (numbers,) = self.numbers
        return [splat(load(numbers, index, 1), self.isa.lanes) for index in range(int(numbers.shape[0]))]

    def _bounded(self, value: Expr) -> Expr:
        """Clamps int32 values."""
        low, high = (splat(load(self.limits, position, 1), self.isa.lanes) for position in (1, 2))
        return tirx.max(tirx.min(value, high), low)

    def _clamped(self, stored: Expr, size: int) -> Expr:
        """Clamps bytes."""
        low, high = (splat(tirx.Cast("uint8", load(self.limits, position, 1)), size) for position in (1, 2))
        stored = tirx.max(stored, low) if self.out.low > 0 else stored
        return tirx.min(stored, high) if self.out.high < 255 else stored
