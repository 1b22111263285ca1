"""The reads of a convolution: what is summed over, as offsets from a pixel's window and weights of 32 bytes each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.compiler.kernels.cuda.images import BLOCK
from service.compiler.kernels.layer import Layer
from service.core.arrays import Array

_LOW, _HIGH = -128, 127  # of a weight


@dataclass(frozen=True)
class Reads:
    """For each tile of filters, one list of reads behind the other.

    Attributes:
        starts: int32 `[tiles + 1]`: the first read of each tile.
        offsets: int32 `[reads]`: bytes from a pixel's window.
        weights: int8 `[reads, filters of a tile, 32]`.
    """

    starts: Array
    offsets: Array
    weights: Array

    @property
    def most(self) -> int:
        """Of any tile."""
        return int(np.diff(self.starts).max())

    @property
    def same(self) -> bool:
        """Whether all tiles have the same offsets."""
        rows = np.split(self.offsets, self.starts[1:-1])
        return all(np.array_equal(row, rows[0]) for row in rows)

    @staticmethod
    def of(layer: Layer, weights: Array, groups: int, filters: int, steps: int) -> Reads:
        """
        Args:
            weights: `[O, KH, KW, C / groups]` integers less their zero point.
            filters: of a tile.
            steps: how many reads are multiplied at a time: each list is filled up to a multiple.
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
    """`[O, KH, KW, C]`: zero for the channels of other groups."""
    if groups == 1:
        return weights
    filters, rows, columns, channels = weights.shape
    whole = np.zeros((groups, filters // groups, rows, columns, groups, channels), weights.dtype)
    for group, own in enumerate(weights.reshape(groups, filters // groups, rows, columns, channels)):
        whole[group, :, :, :, group] = own
    return whole.reshape(filters, rows, columns, groups * channels)


def _dense(layer: Layer, weights: Array) -> tuple[list[int], Array]:
    """The offsets of all reads, and their weights `[reads, O, 32]`."""
    filters, rows, columns, channels = weights.shape
    source, (down, right) = layer.source, layer.window.dilation
    if source.packed:  # the taps of a kernel row are one run of bytes
        weights, columns, channels = weights.reshape(filters, rows, 1, -1), 1, columns * channels
    blocks = -(-channels // BLOCK)
    between = BLOCK if source.packed else source.plane
    filled = np.zeros((filters, rows, columns, blocks * BLOCK), weights.dtype)
    filled[..., :channels] = weights
    steps = down * source.row, right * source.pixel
    taps = [row * steps[0] + column * steps[1] for row in range(rows) for column in range(columns)]
    # All taps of a block of channels, then the next: neighbouring taps read the same bytes, which are near then.
    offsets = [tap + block * between for block in range(blocks) for tap in taps]
    reads = filled.reshape(filters, rows * columns, blocks, BLOCK).transpose(2, 1, 0, 3)
    return offsets, reads.reshape(len(offsets), filters, BLOCK)


def int8_parts(weights: Array) -> list[Array]:
    """`weights` as a sum of what fits int8. (Legacy uint8 models have weights beyond it, a few of a layer.)"""
    parts = [np.clip(weights, _LOW, _HIGH)]
    rest = weights - parts[0]
    while rest.any():
        parts.append(np.clip(rest, _LOW, _HIGH))
        rest = rest - parts[-1]
    return parts
