"""Bilinear interpolation: each output pixel is blended from four source pixels, one block of channels at a time.

For each row and each column of the output, tables contain the positions of the two neighboring source rows or columns,
and the distance from the first of the two.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import tirx

from service.compiler.kernels.arithmetic.interpolation import blend_of, tables_of
from service.compiler.kernels.arithmetic.numerics import bounds
from service.compiler.kernels.halo import fill_halo
from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.layout import Image
from service.compiler.kernels.program import Buffer, Expr, Program, at_most, load, splat
from service.compiler.kernels.simd.images.table import require_blocks
from service.compiler.kernels.vector.isa import PIXELS, Isa
from service.compiler.kernels.vector.lanes import Lanes
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.resize import Bilinear
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array


def resize_bilinear(
    isa: Isa, source: Image, destination: Image, operation: Operation, mode: Mode, *, parallel: bool
) -> Kernel:
    """Returns the kernel of a `qnn.resize_bilinear`.

    Args:
        parallel: true to divide rows of the output among threads.

    Raises:
        Declined: no kernel computes `mode`'s formula for the operator, or an image is packed.
    """
    require_blocks(isa, source, destination)
    formula, bias = blend_of(mode, operation)
    zero_point = bounds(operation.per_tensor("out_type")).zero_point
    return _Resize(
        isa, source, destination, tables_of(formula, operation, source), (formula, bias), zero_point, parallel
    ).kernel()


class _Resize:
    def __init__(
        self,
        isa: Isa,
        source: Image,
        destination: Image,
        tables: list[Array],
        blend: tuple[Bilinear, int],
        zero_point: int,
        parallel: bool,
    ) -> None:
        self.isa, self.source, self.destination, (self.formula, self.bias) = isa, source, destination, blend
        self.parallel, self.constants = parallel, [*tables, np.array([zero_point], np.uint8)]

    def kernel(self) -> Kernel:
        """Returns the kernel. Each iteration of the parallel loop computes one row of one channel block."""
        program, destination = Program(), self.destination
        self.program, self.lanes = program, Lanes(program, self.isa)
        self.read = program.parameter("source", "uint8", self.source.size_bytes)
        *tables, fill = (
            program.parameter(f"constant_{index}", str(array.dtype), array.size)
            for index, array in enumerate(self.constants)
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
        """Writes one row of the output to byte `to`, from the plane whose first pixel is at byte `start`."""
        program, width, pixel = self.program, self.destination.width, self.destination.pixel
        lines = [program.bind(start + load(table, row, 1)) for table in self.rows[:2]]
        down = self._splat(self.rows[2], row)
        count = min(PIXELS, width)
        with program.loop(-(-width // count), "step") as step:
            column = program.bind(at_most(step * count, width - count))
            values = [self._value(lines, down, column + index) for index in range(count)]
            if count == PIXELS:
                first, second, third, fourth = values
                packed = self.isa.pack((first, second, third, fourth), None)
                program.store(self.written, to + column * pixel, packed, self.isa.bytes)
            else:
                for index, value in enumerate(values):
                    narrow = tirx.Cast(f"uint8x{self.isa.lanes}", value)
                    program.store(self.written, to + (column + index) * pixel, narrow, self.isa.lanes)

    def _value(self, lines: Sequence[Expr], down: Expr, column: Expr) -> Expr:
        sides = [self.program.bind(load(table, column, 1)) for table in self.columns[:2]]
        corners = [self.lanes.keep(self.lanes.widen(self.read, line + side)) for line in lines for side in sides]
        right = self._splat(self.columns[2], column)
        return self.lanes.keep(self.formula.express(self.lanes, corners, down, right, self.bias))

    def _splat(self, table: Buffer, index: Expr) -> Expr:
        return self.lanes.keep(splat(load(table, index, 1), self.isa.lanes))
