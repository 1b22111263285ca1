"""Where a layer's accumulators go: requantized, added to a residual, clamped and stored, and the halo around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import tirx

from service.compiler.kernels.halo import fill_halo
from service.compiler.kernels.layer import Layer
from service.compiler.kernels.layout import Image
from service.compiler.kernels.program import Buffer, Expr, load
from service.compiler.kernels.x86.epilogue import Epilogue, Lanes
from service.compiler.kernels.x86.isa import PIXELS


@dataclass(frozen=True)
class Output:
    """A layer's destination, with what its epilogue reads.

    Attributes:
        destination, residual: buffers of the layer's images.
        arrays: of the requantization, a value for each channel.
        parameters: of the epilogue.
    """

    lanes: Lanes
    epilogue: Epilogue
    layer: Layer
    destination: Buffer
    residual: Buffer | None
    arrays: tuple[Buffer, ...]
    parameters: Buffer

    def channels(self, block: Expr) -> tuple[Expr, ...]:
        """The requantization's values for a block of channels."""
        return self.epilogue.channels(self.lanes, self.arrays, block * self.lanes.isa.lanes)

    def fill_halo(self, image: Expr, block: Expr, *, blocks: int = 1, when: Expr) -> None:
        """Fills the halo of some blocks of an image."""
        tensor, value = self.layer.destination, tirx.Cast("uint8", load(self.parameters, 0, 1))
        program, vector_bytes = self.lanes.program, self.lanes.isa.bytes
        plane = image * tensor.blocks + block
        fill_halo(program, vector_bytes, self.destination, tensor, value, plane=plane, planes=blocks, when=when)

    def store(
        self, totals: Sequence[Expr], channels: tuple[Expr, ...], image: Expr, block: Expr, row: Expr, column: Expr
    ) -> None:
        """One block of some pixels in a row.

        Args:
            totals: their accumulators.
            channels: the block's, from `channels`.
            row, column: of the first pixel.
        """
        isa, program = self.lanes.isa, self.lanes.program
        at = self._offset(self.layer.destination, image, block, row, column)
        residuals = self._residuals(len(totals), image, block, row, column)

        def value(pixel: int) -> Expr:
            return self.epilogue.value(self.lanes, totals[pixel], channels, self.parameters, residuals[pixel])

        if len(totals) < PIXELS:
            for pixel in range(len(totals)):
                narrow = self.epilogue.narrow(self.lanes, value(pixel), self.parameters)
                program.store(self.destination, at + pixel * isa.lanes, narrow, isa.lanes)
            return
        for start in _quads(len(totals)):
            first, second, third, fourth = (value(start + pixel) for pixel in range(PIXELS))
            packed = self.epilogue.pack(self.lanes, (first, second, third, fourth), self.parameters)
            program.store(self.destination, at + start * isa.lanes, packed, isa.bytes)

    def _residuals(self, pixels: int, image: Expr, block: Expr, row: Expr, column: Expr) -> list[Expr | None]:
        if self.residual is None or self.layer.residual is None:
            return [None] * pixels
        isa, at = self.lanes.isa, self._offset(self.layer.residual, image, block, row, column)
        return [isa.widen(self.residual, at + pixel * isa.lanes) for pixel in range(pixels)]

    def _offset(self, tensor: Image, image: Expr, block: Expr, row: Expr, column: Expr) -> Expr:
        at = image * tensor.image + block * tensor.plane + row * tensor.row + column * tensor.pixel
        return self.lanes.program.bind(at + tensor.origin)


def _quads(pixels: int) -> list[int]:
    """First pixels of vectors of four that cover `pixels`; the last may overlap."""
    starts = list(range(0, pixels - PIXELS + 1, PIXELS))
    return starts if pixels % PIXELS == 0 else [*starts, pixels - PIXELS]
