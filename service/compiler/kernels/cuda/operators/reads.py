"""The steps of a convolution's reduction (*reads*).

In one step, the kernel loads `BLOCK` (32) bytes of each pixel's window, which are input channels at one kernel tap, and
multiplies them by the 32 weights of each filter. A step is described by the byte offset from the beginning of the
window, and the weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.compiler.kernels.cuda.types.images import BLOCK
from service.compiler.kernels.layer import Layer
from service.core.models.arrays import Array

_LOW, _HIGH = -128, 127  # the range of an int8 weight


@dataclass(frozen=True)
class Reads:
    """The reduction steps of all tiles of filters, one list after another.

    Attributes:
        starts: int32 `[tiles + 1]`: the index of each tile's first step.
        offsets: int32 `[steps]`: the byte offset of each step from the beginning of a pixel's window.
        weights: int8 `[steps, filters of a tile, 32]`.
    """

    starts: Array
    offsets: Array
    weights: Array

    @property
    def most(self) -> int:
        """The largest number of steps of a tile."""
        return int(np.diff(self.starts).max())

    @property
    def same(self) -> bool:
        """True if all tiles have the same list of offsets."""
        rows = np.split(self.offsets, self.starts[1:-1])
        return all(np.array_equal(row, rows[0]) for row in rows)

    @staticmethod
    def of(layer: Layer, weights: Array, groups: int, filters: int, steps: int) -> Reads:
        """Returns the reduction steps of a layer. Steps whose weights are all zero are omitted.

        Args:
            weights: `[O, KH, KW, C / groups]` integers minus their zero point.
            filters: the number of filters of a tile.
            steps: the number of steps that are multiplied at a time. The list of each tile is extended to a multiple.
        """
        offsets, dense = _dense(layer, _ungrouped(weights, groups))
        tiles = -(-len(weights) // filters)
        filled = np.zeros((len(offsets), tiles * filters, BLOCK), dense.dtype)
        filled[:, : len(weights)] = dense
        parts = int8_parts(filled)
        starts, found, values = [0], [], []
        for tile in range(tiles):
            own = [
                (offset, read[tile * filters : (tile + 1) * filters])
                for part in parts
                for offset, read in zip(offsets, part, strict=True)
                if read[tile * filters : (tile + 1) * filters].any()
            ]
            empty = np.zeros((filters, BLOCK), dense.dtype)
            own += [(0, empty)] * (max(steps, -(-len(own) // steps) * steps) - len(own))
            found += [offset for offset, _ in own]
            values += [read for _, read in own]
            starts.append(len(found))
        return Reads(np.array(starts, np.int32), np.array(found, np.int32), np.stack(values).astype(np.int8))


def _ungrouped(weights: Array, groups: int) -> Array:
    """Converts weights `[O, KH, KW, C / groups]` to `[O, KH, KW, C]`, with zeros for the channels of other groups."""
    if groups == 1:
        return weights
    filters, rows, columns, channels = weights.shape
    whole = np.zeros((groups, filters // groups, rows, columns, groups, channels), weights.dtype)
    for group, own in enumerate(weights.reshape(groups, filters // groups, rows, columns, channels)):
        whole[group, :, :, :, group] = own
    return whole.reshape(filters, rows, columns, groups * channels)


def _dense(layer: Layer, weights: Array) -> tuple[list[int], Array]:
    """Returns the offsets of all steps, and their weights `[steps, O, 32]`, before weights beyond int8 are split."""
    filters, rows, columns, channels = weights.shape
    source, (down, right) = layer.source, layer.window.dilation
    if source.packed:  # the bytes under a kernel row are contiguous
        weights, columns, channels = weights.reshape(filters, rows, 1, -1), 1, columns * channels
    blocks = -(-channels // BLOCK)
    between = BLOCK if source.packed else source.plane
    filled = np.zeros((filters, rows, columns, blocks * BLOCK), weights.dtype)
    filled[..., :channels] = weights
    steps = down * source.row, right * source.pixel
    taps = [row * steps[0] + column * steps[1] for row in range(rows) for column in range(columns)]
    # The steps for all kernel taps of one channel block come before those for the next block. Neighboring taps read the
    # same bytes, which are then in cache.
    offsets = [tap + block * between for block in range(blocks) for tap in taps]
    reads = filled.reshape(filters, rows * columns, blocks, BLOCK).transpose(2, 1, 0, 3)
    return offsets, reads.reshape(len(offsets), filters, BLOCK)


def int8_parts(weights: Array) -> list[Array]:
    """Splits `weights` into int8 arrays whose sum they are. In legacy uint8 models, a few weights of a layer exceed
    int8."""
    parts = [np.clip(weights, _LOW, _HIGH)]
    rest = weights - parts[0]
    while rest.any():
        parts.append(np.clip(rest, _LOW, _HIGH))
        rest = rest - parts[-1]
    return parts
