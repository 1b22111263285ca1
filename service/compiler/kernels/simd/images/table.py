"""Applies a lookup table of 256 bytes to an image, one vector at a time."""

from __future__ import annotations

import numpy as np

from service.compiler.kernels.arithmetic.tables import ENTRIES
from service.compiler.kernels.halo import fill_halo
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layout import Image
from service.compiler.kernels.program import Program, load
from service.compiler.kernels.vector.isa import Isa
from service.compiler.kernels.walk import View, Walk, map_bytes
from service.core.models.arrays import Array


def table(isa: Isa, source: Image, destination: Image, values: Array, zero_point: int, *, parallel: bool) -> Kernel:
    """Returns the kernel that replaces each byte of an image by `values[byte]`.

    Args:
        values: `[256] uint8`, maps stored values to stored values.
        zero_point: the value of the destination's halo, as stored.
        parallel: true to divide runs of pixels among threads.

    Raises:
        Declined: an image is packed.
    """
    require_blocks(isa, source, destination)
    program = Program()
    read = program.parameter("source", "uint8", source.size_bytes)
    constants = [isa.arrange_table(values), np.array([zero_point], np.uint8)]
    entries = program.parameter("table", "uint8", ENTRIES)
    fill = program.parameter("zero_point", "uint8", 1)
    written = program.parameter("destination", "uint8", destination.size_bytes)
    extents = (destination.batch, destination.blocks, destination.height, destination.width)
    walk = Walk(extents, [View.of(source), View.of(destination)], isa.lanes, parallel=parallel)
    with walk.runs(program) as run:
        plane = run.image * destination.blocks + run.block
        fill_halo(program, isa.bytes, written, destination, load(fill, 0, 1), plane=plane, when=run.first)
        positions = [(read, run.starts[0])], (written, run.starts[1])
        map_bytes(program, isa.bytes, *positions, run.pixels * isa.lanes, isa.lookup(program, entries))
    return Kernel("table", program.function(), tuple(constants), destination.size_bytes)


def require_blocks(isa: Isa, *images: Image) -> None:
    """Checks that a kernel's images are in blocks of `isa.lanes` channels.

    Raises:
        Declined: an image is packed.
    """
    if any(image.block != isa.lanes for image in images):
        raise Declined(f"an image is not in blocks of {isa.lanes} channels")
