"""The output stage of a layer. It requantizes accumulators, adds a residual, clamps and stores, and fills the halo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import tirx

from service.compiler.kernels.arithmetic.epilogue import AnyEpilogue, Epilogue, WideEpilogue, load_channels
from service.compiler.kernels.halo import fill_halo
from service.compiler.kernels.layer import Layer
from service.compiler.kernels.layout import Image
from service.compiler.kernels.program import Buffer, Expr, load, shuffle
from service.compiler.kernels.simd.convolution.wide import WideOutput
from service.compiler.kernels.vector.isa import PIXELS
from service.compiler.kernels.vector.lanes import Lanes


@dataclass(frozen=True)
class Output:
    """The output stage of a layer whose result is an 8-bit image.

    Attributes:
        destination, residual: the buffers of the layer's images.
        constants: the buffers of the epilogue's constants.
    """

    lanes: Lanes
    epilogue: Epilogue
    layer: Layer
    destination: Buffer
    residual: Buffer | None
    constants: tuple[Buffer, ...]

    @property
    def size_bytes(self) -> int:
        """The size of the destination."""
        return self.layer.destination.size_bytes

    @property
    def parameters(self) -> Buffer:
        return self.constants[-1]

    def channels(self, block: Expr) -> tuple[Expr, ...]:
        """Loads the values of the requantization's arrays for a block of channels."""
        return load_channels(
            self.lanes, self.epilogue.requantization, self.constants[:-1], block * self.lanes.isa.lanes
        )

    def fill_halo(self, image: Expr, block: Expr, *, blocks: int = 1, when: Expr) -> None:
        """Fills the halo of some blocks of an image."""
        tensor, value = self.layer.destination, tirx.Cast("uint8", load(self.parameters, 0, 1))
        program, vector_bytes = self.lanes.program, self.lanes.isa.bytes
        plane = image * tensor.blocks + block
        fill_halo(program, vector_bytes, self.destination, tensor, value, plane=plane, planes=blocks, when=when)

    def store_tile(
        self,
        accumulators: Sequence[Expr],
        columns: int,
        channels: tuple[Expr, ...],
        image: Expr,
        block: Expr,
        row: Expr,
        column: Expr,
    ) -> None:
        """Applies the epilogue to one block of some rows of pixels, `columns` wide, and stores the results.

        Four contiguous pixels are packed and stored together. If the rows are shorter, four pixels of several rows are
        packed together, and stored one by one.

        Args:
            accumulators: the accumulators of the pixels, row by row.
            channels: the result of `channels` for the block.
            row, column: the position of the first pixel.
        """
        program, pixels = self.lanes.program, [divmod(index, columns) for index in range(len(accumulators))]
        at = program.bind(self.layer.destination.at(image, block, row, column))
        to = [at + self._step(self.layer.destination, pixel) for pixel in pixels]
        residuals = self._residuals(pixels, image, block, row, column)

        def value(pixel: int) -> Expr:
            return self.epilogue.value(self.lanes, accumulators[pixel], channels, self.parameters, residuals[pixel])

        if len(accumulators) < PIXELS:
            for pixel, index in enumerate(to):
                narrow = self.epilogue.narrow(self.lanes, value(pixel), self.parameters)
                program.store(self.destination, index, narrow, self.lanes.isa.lanes)
            return
        together = columns >= PIXELS
        lines = range(0, len(accumulators), columns) if together else [0]
        for start in (line + quad for line in lines for quad in _quads(columns if together else len(accumulators))):
            first, second, third, fourth = (value(start + pixel) for pixel in range(PIXELS))
            packed = self.epilogue.pack(self.lanes, (first, second, third, fourth), self.parameters)
            self._store_quad(packed, to[start : start + PIXELS], together=together)

    def _store_quad(self, packed: Expr, to: Sequence[Expr], *, together: bool) -> None:
        program, isa = self.lanes.program, self.lanes.isa
        if together:
            program.store(self.destination, to[0], packed, isa.bytes)
            return
        packed = program.bind(packed, f"uint8x{isa.bytes}")
        for pixel, index in enumerate(to):
            own = shuffle(packed, range(pixel * isa.lanes, (pixel + 1) * isa.lanes))
            program.store(self.destination, index, own, isa.lanes)

    def _residuals(
        self, pixels: Sequence[tuple[int, int]], image: Expr, block: Expr, row: Expr, column: Expr
    ) -> list[Expr | None]:
        tensor = self.layer.residual
        if self.residual is None or tensor is None:
            return [None] * len(pixels)
        at = self.lanes.program.bind(tensor.at(image, block, row, column))
        return [self.lanes.widen(self.residual, at + self._step(tensor, pixel)) for pixel in pixels]

    @staticmethod
    def _step(tensor: Image, pixel: tuple[int, int]) -> int:
        """Returns the distance in bytes from a tile's first pixel to the pixel at (row, column) in the tile."""
        return pixel[0] * tensor.row + pixel[1] * tensor.pixel


def output_of(
    lanes: Lanes,
    epilogue: AnyEpilogue,
    layer: Layer,
    destination: Buffer,
    residual: Buffer | None,
    constants: Sequence[Buffer],
) -> Output | WideOutput:
    """Returns the output stage of a layer. The arguments are the attributes of `Output`."""
    if isinstance(epilogue, WideEpilogue):
        return WideOutput(lanes, epilogue, layer, destination, tuple(constants))
    return Output(lanes, epilogue, layer, destination, residual, tuple(constants))


def _quads(pixels: int) -> list[int]:
    """Returns the first pixel of each group of four that cover `pixels`. The last group may overlap."""
    starts = list(range(0, pixels - PIXELS + 1, PIXELS))
    return starts if pixels % PIXELS == 0 else [*starts, pixels - PIXELS]
