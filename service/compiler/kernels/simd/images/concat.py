"""Concatenation of channels. The planes of each part are copied, through a lookup table if the part's type differs from
the destination's.

If a part begins inside a block of the destination, its channels are shifted within vectors. A destination block then
contains the last channels of one source block and the first channels of the next. The part's first destination block
also contains the last channels of the previous part.

A part that begins at a block and has the destination's type is not copied if the kernel that computes the part can
write it directly to the destination.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

import numpy as np
from tvm import tirx

from service.compiler.kernels.arithmetic.numerics import bounds
from service.compiler.kernels.arithmetic.tables import ENTRIES, channel_tables, first_channels, is_identity
from service.compiler.kernels.halo import fill_halo
from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.layout import Image
from service.compiler.kernels.program import Buffer, Expr, Program, load
from service.compiler.kernels.simd.images.table import require_blocks
from service.compiler.kernels.vector.isa import Isa
from service.compiler.kernels.walk import Vector, View, Walk, map_bytes
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array


def concat(
    isa: Isa,
    sources: Sequence[Image],
    destination: Image,
    operation: Operation,
    mode: Mode,
    *,
    placed: Collection[int] = (),
    parallel: bool,
) -> Kernel:
    """Returns the kernel of a `qnn.concatenate` along the channels.

    Args:
        sources: the parts, in order.
        placed: the indices of the parts that are already in the destination (`tables.places`). These parts are not
            parameters of the kernel.
        parallel: true to divide runs of pixels among threads.

    Raises:
        Declined: the axis is not the channels, a type is not 8 bits with one scale, or an image is packed.
    """
    require_blocks(isa, *sources, destination)
    parts = {index: image for index, image in enumerate(sources) if index not in placed}
    return _Concat(isa, parts, destination, operation, channel_tables(mode, operation), parallel).kernel(
        bounds(operation.per_tensor("out_type")).zero_point
    )


class _Concat:
    def __init__(
        self,
        isa: Isa,
        sources: dict[int, Image],
        destination: Image,
        operation: Operation,
        tables: Sequence[Array],
        parallel: bool,
    ) -> None:
        self.isa, self.destination, self.parallel = isa, destination, parallel
        self.sources = sources
        self.first_channels = first_channels(operation)
        self.program = Program()
        self.tables = {position: tables[position] for position in self.sources if not is_identity(tables[position])}

    def kernel(self, zero_point: int) -> Kernel:
        program, sources, destination = self.program, self.sources, self.destination
        self.read = {
            position: program.parameter(f"part_{position}", "uint8", image.size_bytes)
            for position, image in sources.items()
        }
        arranged = [self.isa.arrange_table(values) for values in self.tables.values()]
        constants = [np.array([zero_point], np.uint8), *([np.concatenate(arranged)] if arranged else [])]
        self.constants = [
            program.parameter(f"constant_{position}", "uint8", array.size) for position, array in enumerate(constants)
        ]
        self.written = program.parameter("destination", "uint8", destination.size_bytes)
        for position in sources:
            self._part(position, *divmod(self.first_channels[position], self.isa.lanes))
        facts = {
            "tables": len(self.tables),
            "aligned": all(channel % self.isa.lanes == 0 for channel in self.first_channels),
            "in_place": len(self.first_channels) - len(sources),
        }
        return Kernel("concat", program.function(), tuple(constants), destination.size_bytes, facts)

    def _part(self, part: int, block: int, lane: int) -> None:
        """Copies part number `part`, whose first channel is lane `lane` of the destination's block `block`."""
        source, read = self.sources[part], self.read[part]
        look = partial(self._look, part)
        if lane == 0:
            self._blocks(block, source.blocks, [(read, View.of(source))], look)
            return

        def shared(before: Expr, own: Expr, lanes: int) -> Expr:
            return self._merged(before, look(own, lanes), lanes, lane, 0)

        def shift(one: Expr, following: Expr, lanes: int) -> Expr:
            return look(self._merged(one, following, lanes, lane, self.isa.lanes - lane), lanes)

        self._blocks(
            block, 1, [(self.written, View.of(self.destination).from_block(block)), (read, View.of(source))], shared
        )
        pairs = source.blocks - 1
        if pairs:
            self._blocks(block + 1, pairs, [(read, View.of(source)), (read, View.of(source).from_block(1))], shift)
        if lane + source.channels > (pairs + 1) * self.isa.lanes:  # the last channels need one more block
            last = read, View.of(source).from_block(pairs)
            self._blocks(block + 1 + pairs, 1, [last, last], shift)

    def _blocks(self, first: int, count: int, sources: Sequence[tuple[Buffer, View]], function: Vector) -> None:
        """Writes `count` destination blocks from block `first` on, by applying `function` to vectors of the sources."""
        destination = self.destination
        extents = (destination.batch, count, destination.height, destination.width)
        views = [*(view for _, view in sources), View.of(destination).from_block(first)]
        with Walk(extents, views, self.isa.lanes, parallel=self.parallel).runs(self.program) as run:
            plane = run.image * destination.blocks + (run.block + first)
            fill = load(self.constants[0], 0, 1)
            fill_halo(self.program, self.isa.bytes, self.written, destination, fill, plane=plane, when=run.first)
            *starts, to = run.starts
            positions = [(buffer, start) for (buffer, _), start in zip(sources, starts, strict=True)]
            size = run.pixels * self.isa.lanes
            map_bytes(self.program, self.isa.bytes, positions, (self.written, to), size, function)

    def _look(self, part: int, vector: Expr, lanes: int) -> Expr:
        """Converts bytes of a part to the destination's type."""
        if part not in self.tables:
            return vector
        offset = list(self.tables).index(part) * ENTRIES
        return self.isa.lookup(self.program, self.constants[1], offset)(vector, lanes)

    def _merged(self, low: Expr, high: Expr, lanes: int, lane: int, start: int) -> Expr:
        """Returns, for each block of a vector, `lane` lanes of `low` from lane `start` on, then the first lanes of
        `high`.
        """
        block = self.isa.lanes
        order = [
            pixel + (start + position if position < lane else lanes + position - lane)
            for pixel in range(0, lanes, block)
            for position in range(block)
        ]
        return tirx.Shuffle([low, high], [tirx.const(position, "int32") for position in order])
