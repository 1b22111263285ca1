"""Converts between contiguous tensors, as in the model's inputs and outputs, and the images that kernels work on.

Tensors are `[N, H, W, C]`, or `[N, C, H, W]` (see `channels_first`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial

import numpy as np
from tvm import tirx

from service.compiler.kernels.arithmetic.conversion import convert
from service.compiler.kernels.halo import fill_halo
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layout import BIAS, Image
from service.compiler.kernels.program import Buffer, Expr, Program, at_most, bits, load, splat
from service.compiler.kernels.simd.memory.channels_first import ChannelsFirst
from service.compiler.kernels.vector.isa import PIXELS, Isa
from service.compiler.kernels.walk import Run, Vector, View, Walk, map_bytes
from service.compiler.qnn.expressions.conversions import Conversion, Dequantization, Quantization
from service.core.models.arrays import Array


def pack(
    isa: Isa,
    destination: Image,
    dtype: str,
    zero_point: int,
    quantization: Quantization | None = None,
    *,
    channels_first: bool = False,
    parallel: bool,
) -> Kernel:
    """Returns the kernel that converts a contiguous tensor to an image, and fills the halo.

    The kernel's inputs are the tensor `[N * H * W * C]` of `dtype`, without slack, and one uint8, the value of the
    halo. Filler after the last channel of the last block is set to 0.

    Args:
        destination: packed, or in blocks of `isa.lanes` channels.
        dtype: uint8; int8, to which 128 is added; or float32 with a `quantization`.
        zero_point: the value of the halo, as stored.
        channels_first: true if the tensor is `[N, C, H, W]`, false if it is `[N, H, W, C]`.
        parallel: true to divide runs of pixels among threads.

    Raises:
        Declined: the dtype or the layout is not supported.
    """
    _check(isa, destination, "uint8" if quantization else dtype)
    program = Program()
    source = program.parameter("source", dtype, _elements(destination))
    constants: list[Array] = [np.array([zero_point], np.uint8)] if destination.halo else []
    fill = [load(program.parameter("zero_point", "uint8", 1), 0, 1) for _ in constants]
    convert = partial(as_stored, dtype) if quantization is None else _converted(program, quantization, constants)
    target = program.parameter("destination", "uint8", destination.size_bytes)
    if channels_first:
        ChannelsFirst(program, isa, destination, source, target, convert, parallel).pack(fill)
    else:
        ends = (source, _contiguous(destination)), (target, View.of(destination))
        _Reorder(program, isa, destination, ends, convert, fill, parallel).write()
    facts = _facts(destination, channels_first=channels_first)
    return Kernel("pack", program.function(), tuple(constants), destination.size_bytes, facts)


def unpack(
    isa: Isa,
    source: Image,
    dtype: str,
    dequantization: Dequantization | None = None,
    *,
    channels_first: bool = False,
    parallel: bool,
) -> Kernel:
    """Returns the kernel that converts an image to a contiguous tensor `[N * H * W * C]` of `dtype`, without slack.

    Args:
        source: packed, or in blocks of `isa.lanes` channels. The image must be in blocks if the tensor is
            `channels_first`.
        dtype: uint8; int8, for which 128 is subtracted; or float32 with a `dequantization`.
        channels_first: true if the tensor is `[N, C, H, W]`, false if it is `[N, H, W, C]`.
        parallel: true to divide runs of pixels among threads.

    Raises:
        Declined: the dtype or the layout is not supported.
    """
    _check(isa, source, "uint8" if dequantization else dtype)
    program, constants = Program(), list[Array]()
    origin = program.parameter("source", "uint8", source.size_bytes)
    convert = partial(as_shown, dtype) if dequantization is None else _converted(program, dequantization, constants)
    target = program.parameter("destination", dtype, _elements(source))
    if channels_first and source.packed:
        raise Declined("a packed image cannot be converted to a tensor [N, C, H, W]")
    if channels_first:
        ChannelsFirst(program, isa, source, target, origin, convert, parallel).unpack()
    else:
        ends = (origin, View.of(source)), (target, _contiguous(source))
        _Reorder(program, isa, source, ends, convert, None, parallel).write()
    size = _elements(source) * np.dtype(dtype).itemsize
    facts = _facts(source, channels_first=channels_first)
    return Kernel("unpack", program.function(), tuple(constants), size, facts)


def _converted(program: Program, conversion: Conversion, constants: list[Array]) -> Vector:
    """Returns a function that applies `conversion`. The numbers of `conversion` become an additional parameter of the
    kernel.
    """
    constants.append(np.array(conversion.numbers, np.int32))
    numbers = program.parameter("numbers", "int32", constants[-1].size)
    return partial(convert, conversion, numbers)


class _Reorder:
    """A conversion between a tensor `[N, H, W, C]` and an image, in either direction.

    Attributes:
        image: the layout of the image.
        ends: (buffer, view) of the source and of the destination.
        convert: a function that converts a vector of the source's values to the destination's type.
        fill: a list with the value of the destination's halo, or an empty list; None if the destination is a tensor.
    """

    def __init__(
        self,
        program: Program,
        isa: Isa,
        image: Image,
        ends: tuple[tuple[Buffer, View], tuple[Buffer, View]],
        convert: Vector,
        fill: list[Expr] | None,
        parallel: bool,
    ) -> None:
        self.program, self.isa, self.image, self.parallel = program, isa, image, parallel
        (self.read, source), (self.written, destination) = ends
        self.views, self.convert, self.fill = (source, destination), convert, fill
        # The number of whole blocks, and the number of channels of the last block if it has filler.
        self.whole, self.rest = divmod(image.channels, image.pixel)

    def write(self) -> None:
        image = self.image
        alike = (
            image.packed or image.channels == image.block
        )  # a row of pixels is contiguous, and has the same order of bytes, in source and destination
        if alike or (image.height == image.width == 1 and not image.halo):
            self._runs()
            if self.rest:
                self._pixels(self.whole)
        else:
            self._pixels(0)

    def _runs(self) -> None:
        """Converts the blocks without filler, if they are contiguous in source and destination."""
        if not self.whole:
            return
        with self._walk(self.whole, self.views) as run:
            self._fill_halo(run, 1)
            source, destination = ((buffer, start) for buffer, start in zip(self._buffers, run.starts, strict=True))
            size = run.pixels * self.image.pixel
            map_bytes(self.program, self.isa.bytes, [source], destination, size, self.convert)

    def _pixels(self, first: int) -> None:
        """Converts the blocks from `first` on: all channels of four pixels, then all channels of the next four pixels.

        In this order, every cache line is read once and written once.
        """
        program, views = self.program, [view.from_block(first) for view in self.views]
        with self._walk(1, views) as run:
            self._fill_halo(run, self.image.blocks)
            pixels = min(PIXELS, run.pixels)
            with program.loop(-(-run.pixels // pixels), "step") as step:
                pixel = program.bind(at_most(step * pixels, run.pixels - pixels))
                starts = [
                    program.bind(start + pixel * stride) for start, stride in zip(run.starts, run.strides, strict=True)
                ]

                def block_at(block: Expr, starts: list[Expr] = starts) -> list[Expr]:
                    return [start + block * view.strides[1] for start, view in zip(starts, views, strict=True)]

                if self.whole > first:
                    with program.loop(self.whole - first, "block") as block:
                        self._copy(run, block_at(block), pixels, self.isa.lanes)
                if self.rest:
                    self._copy(run, block_at(self.whole - first), pixels, self.rest)

    def _copy(self, run: Run, starts: Sequence[Expr], pixels: int, channels: int) -> None:
        """Converts `channels` channels of one block of some pixels. Filler in an image's last block is set to 0."""
        program, lanes = self.program, self.isa.lanes
        for pixel in range(pixels):
            source, destination = (
                (buffer, start + pixel * stride)
                for buffer, start, stride in zip(self._buffers, starts, run.strides, strict=True)
            )
            if self.fill is not None and channels < lanes:
                program.store(*destination, splat(tirx.const(0, "uint8"), lanes), lanes)
            map_bytes(program, lanes, [source], destination, channels, self.convert)

    @property
    def _buffers(self) -> tuple[Buffer, Buffer]:
        return self.read, self.written

    def _walk(self, blocks: int, views: Sequence[View]) -> AbstractContextManager[Run]:
        image = self.image
        extents = (image.batch, blocks, image.height, image.width)
        return Walk(extents, views, image.pixel, parallel=self.parallel).runs(self.program)

    def _fill_halo(self, run: Run, planes: int) -> None:
        """Fills the halo of `planes` planes, beginning with the plane of `run`."""
        for value in self.fill or []:
            plane = run.image * self.image.blocks + run.block
            into = self.written, self.image, value
            fill_halo(self.program, self.isa.bytes, *into, plane=plane, planes=planes, when=run.first)


def _check(isa: Isa, image: Image, dtype: str) -> None:
    if dtype not in BIAS:
        raise Declined(f"{dtype} is not stored in 8 bits")
    if image.block not in (0, isa.lanes):
        raise Declined(f"{isa.name} has no blocks of {image.block} channels")


def _elements(image: Image) -> int:
    return image.batch * image.height * image.width * image.channels


def _contiguous(image: Image) -> View:
    """Returns the contiguous tensor as a view whose blocks have as many channels as the blocks of the image."""
    row = image.width * image.channels
    return View(0, (image.height * row, image.pixel, row, image.channels))


def _facts(image: Image, *, channels_first: bool) -> dict[str, str]:
    layout = {"layout": "packed" if image.packed else f"blocks of {image.block}"}
    return {**layout, "tensor": "channels first"} if channels_first else layout


def as_stored(dtype: str, vector: Expr, lanes: int) -> Expr:
    """Converts bytes of a contiguous tensor to stored bytes. For int8, it adds 128 by flipping the highest bit."""
    return vector if dtype == "uint8" else _flip_sign(bits(_vector("uint8", lanes), vector), lanes)


def as_shown(dtype: str, vector: Expr, lanes: int) -> Expr:
    """Converts stored bytes to bytes of a contiguous tensor. For int8, it subtracts 128 by flipping the highest bit."""
    return vector if dtype == "uint8" else bits(_vector("int8", lanes), _flip_sign(vector, lanes))


def _flip_sign(vector: Expr, lanes: int) -> Expr:
    highest = tirx.const(128, "uint8")
    return vector ^ (splat(highest, lanes) if lanes > 1 else highest)


def _vector(name: str, lanes: int) -> str:
    return f"{name}x{lanes}" if lanes > 1 else name
