"""Bilinear interpolation: each output pixel of a block of channels between four pixels of the same block.

Where the four lie, and how far the output is from each, are tables: one entry for each row and column of the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from tvm import tirx

from service.compiler.kernels.halo import fill_halo
from service.compiler.kernels.kernel import Array, Declined, Kernel
from service.compiler.kernels.layout import BIAS, Image
from service.compiler.kernels.program import Buffer, Expr, Program, at_most, bits, load, splat
from service.compiler.kernels.simd.isa import PIXELS, Isa
from service.compiler.kernels.simd.lanes import Lanes
from service.compiler.kernels.simd.numerics import bounds
from service.compiler.kernels.simd.table import require_blocks
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.resize import Bilinear, ByStorage, ElevenBits, Float, TenBits
from service.compiler.qnn.operation import Operation


class Blend(Protocol):
    """The blend of four neighbours: top left, top right, bottom left, bottom right, as stored, int32."""

    def apply(self, lanes: Lanes, corners: Sequence[Expr], down: Expr, right: Expr) -> Expr:
        """`down` and `right`: how far the output is from the first, in every lane. Returns the stored value, int32."""


class Eleventh(Blend):
    """`ElevenBits`. Stored bytes that are 128 higher give a result that is 128 higher: it is rounded down."""

    def apply(self, lanes: Lanes, corners: Sequence[Expr], down: Expr, right: Expr) -> Expr:
        a, b, c, d = corners
        count, half = lanes.const(11), lanes.const(1 << 21)
        top, bottom = (lanes.keep((x << count) + (y - x) * right) for x, y in ((a, b), (c, d)))
        return ((top << count) + (bottom - top) * down + half) >> lanes.const(22)


class Tenth(Blend):
    """`TenBits`: halves away from zero, so the 128 of int8 is taken out before, and put back."""

    def apply(self, lanes: Lanes, corners: Sequence[Expr], down: Expr, right: Expr) -> Expr:
        a, b, c, d = (lanes.keep(corner - lanes.const(BIAS["int8"])) for corner in corners)
        whole, zero = lanes.const(1 << 10), lanes.const(0)
        up, left = lanes.keep(whole - down), lanes.keep(whole - right)
        total = lanes.keep((a * up + c * down) * left + (b * up + d * down) * right)
        magnitude = lanes.keep((tirx.max(total, zero - total) + lanes.const(1 << 19)) >> lanes.const(20))
        return tirx.Select(total < zero, zero - magnitude, magnitude) + lanes.const(BIAS["int8"])


class Real(Blend):
    """`Float`, whose distances are float32."""

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
    """The formula of a `qnn.resize_bilinear` in `mode`, and its blend on vectors.

    Raises:
        Declined: no kernel computes it.
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


def resize_bilinear(
    isa: Isa, source: Image, destination: Image, operation: Operation, mode: Mode, *, parallel: bool
) -> Kernel:
    """`qnn.resize_bilinear`.

    Args:
        parallel: whether rows of the output are shared between threads.

    Raises:
        Declined: no kernel computes `mode`'s formula for it, or an image is packed.
    """
    require_blocks(isa, source, destination)
    formula, blend = blend_of(mode, operation)
    zero_point = bounds(operation.per_tensor("out_type")).zero_point
    return _Resize(
        isa, source, destination, tables_of(formula, operation, source), blend, zero_point, parallel
    ).kernel()


def tables_of(formula: Bilinear, operation: Operation, source: Image) -> list[Array]:
    """For rows, then columns: where both neighbours begin, bytes from the first; and the distance, or its bits."""
    tables: list[Array] = []
    for places, step in zip(formula.axes(operation, source.shape), (source.row, source.pixel), strict=True):
        lower, upper, distance = places
        real = distance.dtype.kind == "f"
        tables += [lower * step, upper * step, distance.astype(np.float32).view(np.int32) if real else distance]
    return [table.astype(np.int32) for table in tables]


class _Resize:
    def __init__(
        self,
        isa: Isa,
        source: Image,
        destination: Image,
        tables: list[Array],
        blend: Blend,
        zero_point: int,
        parallel: bool,
    ) -> None:
        self.isa, self.source, self.destination, self.blend = isa, source, destination, blend
        self.parallel, self.constants = parallel, [*tables, np.array([zero_point], np.uint8)]

    def kernel(self) -> Kernel:
        """One item is one row of pixels of one block of channels."""
        program, destination = Program(), self.destination
        self.program, self.lanes = program, Lanes(program, self.isa)
        self.read = program.parameter("source", "uint8", self.source.size_bytes)
        *tables, fill = (
            program.parameter(f"constant_{place}", str(array.dtype), array.size)
            for place, array in enumerate(self.constants)
        )
        self.rows, self.columns = tables[:3], tables[3:]
        self.written = program.parameter("destination", "uint8", destination.size_bytes)
        rows = destination.batch * destination.blocks * destination.height
        with program.loop(rows, "item", parallel=self.parallel) as item:
            plane, row = program.bind(item // destination.height), program.bind(item % destination.height)
            value = load(fill, 0, 1)
            fill_halo(program, self.isa.bytes, self.written, destination, value, plane=plane, when=row == 0)
            to = program.bind(destination.plane_start(plane) + row * destination.row + destination.margin)
            self._row(program.bind(self.source.plane_start(plane) + self.source.margin), row, to)
        return Kernel("resize", program.function(), tuple(self.constants), destination.size_bytes)

    def _row(self, start: Expr, row: Expr, to: Expr) -> None:
        """One row of the output, to byte `to`, of the plane whose first pixel is at byte `start`."""
        program, width, pixel = self.program, self.destination.width, self.destination.pixel
        lines = [program.bind(start + load(table, row, 1)) for table in self.rows[:2]]
        down = self._splat(self.rows[2], row)
        count = min(PIXELS, width)
        with program.loop(-(-width // count), "step") as step:
            column = program.bind(at_most(step * count, width - count))
            values = [self._value(lines, down, column + place) for place in range(count)]
            if count == PIXELS:
                first, second, third, fourth = values
                packed = self.isa.pack((first, second, third, fourth), None)
                program.store(self.written, to + column * pixel, packed, self.isa.bytes)
            else:
                for place, value in enumerate(values):
                    narrow = tirx.Cast(f"uint8x{self.isa.lanes}", value)
                    program.store(self.written, to + (column + place) * pixel, narrow, self.isa.lanes)

    def _value(self, lines: Sequence[Expr], down: Expr, column: Expr) -> Expr:
        sides = [self.program.bind(load(table, column, 1)) for table in self.columns[:2]]
        corners = [self.lanes.keep(self.lanes.widen(self.read, line + side)) for line in lines for side in sides]
        return self.lanes.keep(self.blend.apply(self.lanes, corners, down, self._splat(self.columns[2], column)))

    def _splat(self, table: Buffer, place: Expr) -> Expr:
        return self.lanes.keep(splat(load(table, place, 1), self.isa.lanes))
