"""Between the tensors that a model's caller sees, contiguous `[N, H, W, C]`, and the images that kernels work on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from tvm import tirx

from service.compiler.kernels.halo import fill_halo
from service.compiler.kernels.kernel import Array, Declined, Kernel
from service.compiler.kernels.layout import BIAS, Image
from service.compiler.kernels.program import Buffer, Expr, Program, bits, load, splat
from service.compiler.kernels.walk import Run, Vector, View, Walk, map_bytes
from service.compiler.kernels.x86.isa import Isa


def enter(isa: Isa, destination: Image, dtype: str, zero_point: int, *, parallel: bool) -> Kernel:
    """From a contiguous tensor, filling the halo.

    The kernel takes `[N * H * W * C]` of `dtype`, without slack behind it, and a uint8 for the halo. What lies behind
    the last channel in the last block becomes 0.

    Args:
        destination: packed, or in blocks of `isa.lanes` channels.
        dtype: uint8, or int8, to which 128 is added.
        zero_point: what the halo holds, as stored.
        parallel: whether runs of pixels are shared between threads.

    Raises:
        Declined: another dtype or layout.
    """
    reorder = _Reorder(isa, destination, dtype, parallel)
    program = reorder.program
    source = program.parameter("source", dtype, reorder.elements)
    constants: list[Array] = [np.array([zero_point], np.uint8)] if destination.halo else []
    buffers = [program.parameter("zero_point", "uint8", 1) for _ in constants]
    target = program.parameter("destination", "uint8", destination.size_bytes)
    for blocks in reorder.parts:
        with reorder.runs(blocks) as (run, plain, inside):
            if buffers:
                plane = run.image * destination.blocks + (run.block + blocks.start)
                fill = load(buffers[0], 0, 1)
                fill_halo(program, isa.bytes, target, destination, fill, plane=plane, when=run.first)
            reorder.copy(run, _Place(source, *plain), _Place(target, *inside), reorder.stored, blocks, fillers=True)
    facts = {"layout": "packed" if destination.packed else f"blocks of {isa.lanes}"}
    return Kernel("enter", program.function(), tuple(constants), destination.size_bytes, facts)


def leave(isa: Isa, source: Image, dtype: str, *, parallel: bool) -> Kernel:
    """To a contiguous tensor `[N * H * W * C]` of `dtype`, without slack behind it.

    Args:
        source: packed, or in blocks of `isa.lanes` channels.
        dtype: uint8, or int8, for which 128 is subtracted.
        parallel: whether runs of pixels are shared between threads.

    Raises:
        Declined: another dtype or layout.
    """
    reorder = _Reorder(isa, source, dtype, parallel)
    program = reorder.program
    origin = program.parameter("source", "uint8", source.size_bytes)
    target = program.parameter("destination", dtype, reorder.elements)
    for blocks in reorder.parts:
        with reorder.runs(blocks) as (run, plain, inside):
            reorder.copy(run, _Place(origin, *inside), _Place(target, *plain), reorder.shown, blocks, fillers=False)
    facts = {"layout": "packed" if source.packed else f"blocks of {isa.lanes}"}
    return Kernel("leave", program.function(), (), reorder.elements, facts)


@dataclass(frozen=True)
class _Place:
    """A run in a buffer: where it starts, and the bytes from one pixel to the next."""

    buffer: Buffer
    start: Expr
    stride: int


class _Reorder:
    """What both ways have in common.

    Attributes:
        whole: blocks of channels without fillers.
        rest: channels of a last block that has fillers, else 0.
        elements: of the contiguous tensor.
    """

    def __init__(self, isa: Isa, image: Image, dtype: str, parallel: bool) -> None:
        if dtype not in BIAS:
            raise Declined(f"{dtype} is not stored in 8 bits")
        if image.block not in (0, isa.lanes):
            raise Declined(f"{isa.name} has no blocks of {image.block} channels")
        self.isa, self.image, self.dtype, self.parallel = isa, image, dtype, parallel
        self.whole, self.rest = divmod(image.channels, image.pixel)
        self.elements = image.batch * image.height * image.width * image.channels
        self.program = Program()

    @property
    def parts(self) -> list[range]:
        """Blocks that are moved alike."""
        whole = range(self.whole)
        return [blocks for blocks in (whole, range(self.whole, self.image.blocks)) if blocks]

    @contextmanager
    def runs(self, blocks: range) -> Iterator[tuple[Run, tuple[Expr, int], tuple[Expr, int]]]:
        """A loop over runs of `blocks`: start and stride in the contiguous tensor, and in the image."""
        image = self.image
        row = image.width * image.channels
        plain = View(blocks.start * image.pixel, (image.height * row, image.pixel, row, image.channels))
        extents = (image.batch, len(blocks), image.height, image.width)
        walk = Walk(extents, [plain, View.of(image, blocks.start)], image.pixel, parallel=self.parallel)
        with walk.runs(self.program) as run:
            plain_place, inside_place = zip(run.starts, run.strides, strict=True)
            yield run, plain_place, inside_place

    def copy(
        self, run: Run, source: _Place, destination: _Place, convert: Vector, blocks: range, *, fillers: bool
    ) -> None:
        """`run` of `blocks`; the last block's missing channels are written as 0 if `fillers`."""
        program, lanes, pixel = self.program, self.isa.lanes, self.image.pixel
        if source.stride == destination.stride == pixel:
            starts = (source.buffer, source.start), (destination.buffer, destination.start)
            map_bytes(program, self.isa.bytes, *starts, run.pixels * pixel, convert)
            return
        size = lanes if blocks.start < self.whole else self.rest
        with program.loop(run.pixels, "pixel") as place:
            read, written = (end.start + place * end.stride for end in (source, destination))
            if fillers and size < lanes:
                program.store(destination.buffer, written, splat(tirx.const(0, "uint8"), lanes), lanes)
            map_bytes(program, lanes, (source.buffer, read), (destination.buffer, written), size, convert)

    def stored(self, vector: Expr, lanes: int) -> Expr:
        """Bytes of the contiguous tensor as kernels store them: 128 more is the highest bit turned."""
        return vector if self.dtype == "uint8" else _turned(bits(_dtype("uint8", lanes), vector), lanes)

    def shown(self, vector: Expr, lanes: int) -> Expr:
        """The other way."""
        return vector if self.dtype == "uint8" else bits(_dtype("int8", lanes), _turned(vector, lanes))


def _turned(vector: Expr, lanes: int) -> Expr:
    highest = tirx.const(128, "uint8")
    return vector ^ (splat(highest, lanes) if lanes > 1 else highest)


def _dtype(name: str, lanes: int) -> str:
    return f"{name}x{lanes}" if lanes > 1 else name
