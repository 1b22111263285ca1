"""Elementwise operators of two quantized images (`qnn.expressions.pairs`), or of one image (by a lookup table)."""

from __future__ import annotations

import numpy as np
from tvm import tirx

from service.compiler.kernels.arithmetic.epilogue import Epilogue
from service.compiler.kernels.arithmetic.numerics import arithmetic_of, bounds
from service.compiler.kernels.arithmetic.tables import table_of
from service.compiler.kernels.halo import fill_halo
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layout import Image
from service.compiler.kernels.program import Buffer, Expr, Program, at_most, load, splat
from service.compiler.kernels.simd.images.table import require_blocks, table
from service.compiler.kernels.vector.isa import PIXELS, Isa
from service.compiler.kernels.vector.lanes import Lanes
from service.compiler.kernels.walk import Run, View, Walk
from service.compiler.qnn.expressions.pairs import Arithmetic
from service.compiler.qnn.expressions.requantization import Kept
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.operation import Operation


def pairwise(
    isa: Isa, lhs: Image, rhs: Image, destination: Image, operation: Operation, mode: Mode, *, parallel: bool
) -> Kernel:
    """Returns the kernel of an operator of two tensors (`qnn.expressions.pairs`).

    An operand whose batch, height or width is 1 is repeated along that dimension if the destination is larger. For
    example, squeeze-and-excitation multiplies `[N, H, W, C]` by `[N, 1, 1, C]`.

    Args:
        parallel: true to divide runs of pixels among threads.

    Raises:
        Declined: no kernel computes `mode`'s formula for the operator, or an image is packed, or channels are
            broadcast.
    """
    arithmetic = arithmetic_of(mode, operation)
    family = operation.name.removeprefix("qnn.")
    return _Elementwise(isa, (lhs, rhs), destination, operation, arithmetic, parallel).kernel(family)


def look_up(isa: Isa, source: Image, destination: Image, operation: Operation, mode: Mode, *, parallel: bool) -> Kernel:
    """Returns the kernel of a function of one 8-bit value, in any mode. A lookup is faster than any arithmetic.

    Such functions are `qnn.requantize` from one 8-bit type to another, those in `qnn.ops.unary`, and arithmetic with a
    uniform constant.

    Raises:
        Declined: a type is not 8 bits with one scale, or an image is packed.
    """
    zero_point = bounds(operation.per_tensor("out_type")).zero_point
    return table(isa, source, destination, table_of(mode, operation), zero_point, parallel=parallel)


class _Elementwise:
    def __init__(
        self,
        isa: Isa,
        operands: tuple[Image, Image],
        destination: Image,
        operation: Operation,
        arithmetic: Arithmetic,
        parallel: bool,
    ) -> None:
        require_blocks(isa, *operands, destination)
        if any(operand.channels != destination.channels for operand in operands):
            raise Declined("channels are broadcast")
        self.isa, self.operands, self.destination, self.arithmetic = isa, operands, destination, arithmetic
        self.epilogue = Epilogue(Kept(), bounds(operation.per_tensor("out_type")))
        extents = _extents(destination)
        views = [View.of(operand).broadcast(_extents(operand), extents) for operand in operands]
        self.walk = Walk(extents, [*views, View.of(destination)], isa.lanes, parallel=parallel)
        self.program = Program()
        self.lanes = Lanes(self.program, isa)

    def kernel(self, family: str) -> Kernel:
        program = self.program
        self.sources = [
            program.parameter(name, "uint8", image.size_bytes)
            for name, image in zip(("lhs", "rhs"), self.operands, strict=True)
        ]
        own = self.epilogue.parameters
        numbers = np.array(self.arithmetic.numbers, np.int32)
        constants = [*self.arithmetic.arrays, np.concatenate([own, numbers])]
        *self.arrays, self.parameters = (
            program.parameter(f"constant_{index}", str(array.dtype), array.size)
            for index, array in enumerate(constants)
        )
        self.first_number, self.numbers = len(own), len(numbers)
        self.written = program.parameter("destination", "uint8", self.destination.size_bytes)
        with self.walk.runs(program) as run:
            self._fill_halo(run)
            self._run(run)
        return Kernel(family, program.function(), tuple(constants), self.destination.size_bytes)

    def _fill_halo(self, run: Run) -> None:
        plane = run.image * self.destination.blocks + run.block
        value = tirx.Cast("uint8", load(self.parameters, 0, 1))
        fill_halo(self.program, self.isa.bytes, self.written, self.destination, value, plane=plane, when=run.first)

    def _run(self, run: Run) -> None:
        program, lanes = self.program, self.isa.lanes
        arrays = [self._splat(array, 0) for array in self.arrays]
        numbers = [self._splat(self.parameters, self.first_number + index) for index in range(self.numbers)]
        repeated = [self._repeated(run, index) for index in range(len(self.operands))]

        def value(pixel: Expr) -> Expr:
            operands = [
                self.lanes.widen(buffer, start + pixel * stride) if held is None else held
                for buffer, start, stride, held in zip(self.sources, run.starts, run.strides, repeated, strict=False)
            ]
            kept = [self.lanes.keep(operand) for operand in operands]
            return self.arithmetic.express(self.lanes, kept, arrays, numbers)

        if run.pixels < PIXELS:
            for pixel in range(run.pixels):
                narrow = self.epilogue.narrow(self.lanes, value(pixel), self.parameters)
                program.store(self.written, run.starts[-1] + pixel * lanes, narrow, lanes)
            return
        with program.loop(-(-run.pixels // PIXELS), "step") as step:
            start = program.bind(at_most(step * PIXELS, run.pixels - PIXELS))
            first, second, third, fourth = (value(start + pixel) for pixel in range(PIXELS))
            packed = self.epilogue.pack(self.lanes, (first, second, third, fourth), self.parameters)
            program.store(self.written, run.starts[-1] + start * lanes, packed, self.isa.bytes)

    def _splat(self, buffer: Buffer, index: int) -> Expr:
        return self.lanes.keep(splat(load(buffer, index, 1), self.isa.lanes), str(buffer.dtype))

    def _repeated(self, run: Run, index: int) -> Expr | None:
        """Loads an operand that is the same for all pixels of the run. Returns None if it differs between pixels."""
        if run.strides[index] or run.pixels == 1:
            return None
        return self.lanes.keep(self.lanes.widen(self.sources[index], run.starts[index]))


def _extents(image: Image) -> tuple[int, int, int, int]:
    return image.batch, image.blocks, image.height, image.width
