"""The output stage of layers whose result is a contiguous tensor of int32, int16 or float32, not an 8-bit image.

Such a tensor is an output of the model, or an operator without a kernel reads it. So the tensor has no blocks and no
halo.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.compiler.kernels.arithmetic.epilogue import WideEpilogue, load_channels
from service.compiler.kernels.layer import Layer
from service.compiler.kernels.program import Buffer, Expr
from service.compiler.kernels.vector.lanes import Lanes


@dataclass(frozen=True)
class WideOutput:
    """The output stage of a layer whose destination is `Contiguous`. Its interface equals that of `Output`."""

    lanes: Lanes
    epilogue: WideEpilogue
    layer: Layer
    destination: Buffer
    constants: tuple[Buffer, ...]

    @property
    def size_bytes(self) -> int:
        return self.layer.destination.size_bytes * np.dtype(self.epilogue.dtype).itemsize

    def channels(self, block: Expr) -> tuple[Expr, ...]:
        return load_channels(self.lanes, self.epilogue.requantization, self.constants, block * self.lanes.isa.lanes)

    def fill_halo(self, image: Expr, block: Expr, *, blocks: int = 1, when: Expr) -> None:
        """Does nothing, because the tensor has no halo."""

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
        """Applies the epilogue to one block of some rows of pixels, `columns` wide, and stores it without filler."""
        program, tensor, lanes = self.lanes.program, self.layer.destination, self.lanes.isa.lanes
        at = program.bind(tensor.at(image, block, row, column))
        values = [
            self.epilogue.requantization.express(self.lanes, accumulator, channels) for accumulator in accumulators
        ]
        positions = [
            at + down * tensor.row + right * tensor.pixel
            for down, right in (divmod(position, columns) for position in range(len(values)))
        ]
        whole, rest = divmod(tensor.channels, lanes)
        for condition, count in ((block < whole, lanes), (block >= whole, rest)) if rest else ((True, lanes),):
            with program.when(condition):
                for position, value in zip(positions, values, strict=True):
                    program.store_first(self.destination, position, value, lanes, count)
