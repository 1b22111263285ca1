"""The reduction of a convolution: its steps, and the order of the weights."""

from __future__ import annotations

import numpy as np

from service.compiler.kernels.layer import Layer
from service.compiler.kernels.program import Expr
from service.compiler.kernels.vector.isa import Isa, Pairs
from service.core.models.arrays import Array


def pairs_of(isa: Isa, layer: Layer, columns: int) -> Pairs | None:
    """Returns the instructions that multiply pairs of pixels, or None if a tile of `columns` columns cannot use them.

    The inputs of neighboring outputs must be neighboring pixels, and the input channels must be a multiple of
    `Pairs.depth`.
    """
    source, pairs = layer.source, isa.pairs
    if pairs is None or source.packed or columns == 1 or layer.window.strides[1] > 1:
        return None
    return pairs if source.blocks * source.block % pairs.depth == 0 and layer.steps[1] == source.block else None


class Reduction:
    """The loops of a reduction: over kernel positions, and over groups of bytes at each position.

    For a packed source, a whole kernel row is one position.

    Attributes:
        groups: the number of groups at a kernel position.
        unrolled: the number of groups in one iteration, a divisor of `groups`.
        positions: the numbers of iterations over kernel rows and columns.
    """

    def __init__(self, isa: Isa, layer: Layer, group: int | None = None) -> None:
        """`group` is the number of bytes in a group, by default `Isa.group`."""
        source, (kernel_h, kernel_w) = layer.source, layer.window.kernel
        self._layer, self._bytes = layer, group or isa.group
        self.positions = (kernel_h, 1) if layer.source.packed else layer.window.kernel
        elements = kernel_w * source.channels if layer.source.packed else source.channels
        self.groups = -(-elements // self._bytes)
        self.unrolled = next(count for count in (4, 2, 1) if count <= isa.unrolled and self.groups % count == 0)
        self.in_block = self.groups if layer.source.packed else source.block // self._bytes

    @property
    def steps(self) -> int:
        return self.groups // self.unrolled

    def offset(self, step: Expr, row: Expr, column: Expr, unrolled: int) -> Expr:
        """Returns the byte offset of a group from the first byte of a window."""
        source, (dilation_h, dilation_w) = self._layer.source, self._layer.window.dilation
        return self._group(step, unrolled) + row * (dilation_h * source.row) + column * (dilation_w * source.pixel)

    def _group(self, step: Expr, unrolled: int) -> Expr:
        plane, group = self._layer.source.plane, step * self.unrolled
        if not self.in_block:  # a group contains several blocks
            blocks = self._bytes // self._layer.source.block * plane
            return step * (self.unrolled * blocks) + unrolled * blocks
        if self.unrolled % self.in_block == 0:  # an iteration contains whole blocks
            first = step * (self.unrolled // self.in_block * plane)
            return first + unrolled // self.in_block * plane + unrolled % self.in_block * self._bytes
        if self._layer.source.packed:
            return group * self._bytes + unrolled * self._bytes
        return group // self.in_block * plane + group % self.in_block * self._bytes + unrolled * self._bytes

    def arrange(self, weights: Array) -> Array:
        """Converts weights `[O, KH, KW, C]` to `[O, steps, rows, columns, unrolled, group]`, extended with zeros."""
        filters, (rows, columns) = len(weights), self.positions
        lines = weights.reshape(filters, rows, columns, -1)
        filled = np.zeros((filters, rows, columns, self.groups * self._bytes), weights.dtype)
        filled[..., : lines.shape[-1]] = lines
        grouped = filled.reshape(filters, rows, columns, self.steps, self.unrolled, self._bytes)
        return grouped.transpose(0, 3, 1, 2, 4, 5)


class Excess:
    """Splits weights beyond the range of `dot` into parts that are within the range.

    Legacy uint8 models have a zero point for weights. Weights minus their zero point can be -255..255, but usually only
    one or two weights of a layer are beyond the range of int8. The first part of each weight is multiplied as usual. A
    second loop multiplies the other parts, only for the groups that contain any. This replaces term 2 of the expansion
    of a quantized product (Jain et al. 2020) at almost no cost.

    Attributes:
        weights: the first part of each weight, in the same shape.
        parts: the other parts, as arrays of the same shape that are mostly zero.
    """

    def __init__(self, weights: Array, isa: Isa) -> None:
        self.weights = np.clip(weights, *isa.weight_limits)
        self.parts: list[Array] = []
        rest = weights - self.weights
        while rest.any():
            self.parts.append(np.clip(rest, *isa.weight_limits))
            rest = rest - self.parts[-1]

    def __bool__(self) -> bool:
        return bool(self.parts)

    @staticmethod
    def groups(reduction: Reduction, parts: list[Array]) -> tuple[Array, Array, Array]:
        """Returns, for each tile of output blocks, the groups in which a weight has more than one part.

        Args:
            parts: arrays `[tiles, blocks of a tile, lanes, steps, rows, columns, unrolled, group]`.

        Returns:
            first: int32 `[tiles + 1]`, the index of each tile's first group.
            offsets: int32 `[groups]`, the byte offset of each group from the first byte of a window.
            weights: `[groups, blocks of a tile, lanes, group]`.
        """
        first, offsets, weights = [0], [], []
        for tile in range(len(parts[0])):
            for part in (part[tile] for part in parts):
                for step, row, column, unrolled in np.argwhere(part.any(axis=(0, 1, 6))).tolist():
                    offsets.append(reduction.offset(step, row, column, unrolled))
                    weights.append(part[:, :, step, row, column, unrolled])
            first.append(len(offsets))
        return np.array(first, np.int32), np.array(offsets, np.int32), np.array(weights)
