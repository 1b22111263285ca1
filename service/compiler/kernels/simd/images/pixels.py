"""Copies the pixels of some rows and columns of an image, for nearest-neighbor resizing."""

from __future__ import annotations

import numpy as np

from service.compiler.kernels.arithmetic.numerics import bounds
from service.compiler.kernels.halo import fill_halo
from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.layout import Image
from service.compiler.kernels.program import Program, load
from service.compiler.kernels.simd.images.table import require_blocks
from service.compiler.kernels.vector.isa import Isa
from service.compiler.qnn.numerics.moving import taken_pixels
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array


def take_pixels(isa: Isa, source: Image, destination: Image, operation: Operation, *, parallel: bool) -> Kernel:
    """Returns the kernel of a `qnn.take_pixels`. Each iteration of the parallel loop copies one row of one channel
    block.

    Args:
        parallel: true to divide rows among threads.

    Raises:
        Declined: an image is packed, or is not stored in 8 bits.
    """
    require_blocks(isa, source, destination)
    rows, columns = taken_pixels(operation)
    zero_point = bounds(operation.per_tensor("out_type")).zero_point
    constants: list[Array] = [
        np.array(rows, np.int32) * source.row,
        np.array(columns, np.int32) * source.pixel,
        np.array([zero_point], np.uint8),
    ]
    program = Program()
    read = program.parameter("source", "uint8", source.size_bytes)
    lines, pixels, fill = (
        program.parameter(name, str(array.dtype), array.size)
        for name, array in zip(("rows", "columns", "zero_point"), constants, strict=True)
    )
    written = program.parameter("destination", "uint8", destination.size_bytes)
    count = destination.batch * destination.blocks * destination.height
    with program.loop(count, "item", parallel=parallel) as item:
        plane, row = program.bind(item // destination.height), program.bind(item % destination.height)
        value = load(fill, 0, 1)
        fill_halo(program, isa.bytes, written, destination, value, plane=plane, when=row == 0)
        start = program.bind(source.plane_start(plane) + source.margin + load(lines, row, 1))
        to = program.bind(destination.plane_start(plane) + row * destination.row + destination.margin)
        with program.loop(destination.width, "column") as column:
            pixel = load(read, start + load(pixels, column, 1), isa.lanes)
            program.store(written, to + column * destination.pixel, pixel, isa.lanes)
    return Kernel("pixels", program.function(), tuple(constants), destination.size_bytes)
