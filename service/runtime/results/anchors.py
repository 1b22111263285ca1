"""Detection networks whose outputs are relative to anchors: fixed points, or cells of a grid over the picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.core.models.arrays import Array

_YOLOX_STRIDES = (8, 16, 32)


@dataclass(frozen=True)
class _Anchors:
    """The anchors of a network of MediaPipe: `SsdAnchorsCalculatorOptions` in its graphs, with anchors of size 1.

    Attributes:
        size: the height and the width of the input.
        strides: the pixels between the cells of each layer.
        per_layer: the anchors that each layer adds to a cell.
    """

    size: int
    strides: tuple[int, ...]
    per_layer: int = 2

    def centers(self) -> Array:
        """Returns x and y of each anchor in fractions of the picture, `[n, 2]`. Layers with equal strides share
        cells.
        """
        layers = Counter(self.strides)
        parts = [
            np.repeat(_cells(self.size, self.size, stride) + 0.5, count * self.per_layer, axis=0) * stride / self.size
            for stride, count in layers.items()
        ]
        joined: Array = np.concatenate(parts)
        return joined


_MEDIAPIPE = (
    _Anchors(128, (8, 16, 16, 16)),  # faces at a short range: 896 anchors
    _Anchors(192, (4,), per_layer=1),  # faces at a full range: 2304
    _Anchors(192, (8, 16, 16, 16)),  # palms: 2016
    _Anchors(224, (8, 16, 32, 32, 32)),  # persons: 2254
)


def mediapipe_boxes(regressors: Array, size: tuple[int, int] | None) -> tuple[Array, Array] | None:
    """Returns the boxes and key points of a network of MediaPipe, in fractions of the picture: left, top, right and
    bottom `[n, 4]`, and x and y `[n, points, 2]`. Returns None if no such network has so many anchors.

    Args:
        regressors: center, size and key points in pixels, relative to the anchors, `[n, 4 + 2 * points]`.
        size: the height and the width of the input.
    """
    for each in _MEDIAPIPE:
        if size == (each.size, each.size) and len(centers := each.centers()) == len(regressors):
            pairs = regressors.reshape(len(regressors), -1, 2).astype(np.float64) / each.size
            middle, extent = centers + pairs[:, 0], pairs[:, 1]
            corners = np.concatenate([middle - extent / 2, middle + extent / 2], axis=-1)
            return corners, pairs[:, 2:] + centers[:, np.newaxis]
    return None


def yolox_boxes(rows: Array, size: tuple[int, int] | None) -> Array | None:
    """Returns center and size in pixels, `[n, 4]`, of the boxes that YOLOX gives relative to the cells of its grids.
    Returns None for another network, and if the boxes are in pixels already (`--decode_in_inference`).

    Args:
        rows: center, size, score of any object, and scores, `[n, 5 + classes]`.
        size: the height and the width of the input.
    """
    if size is None or any(length % stride for length in size for stride in _YOLOX_STRIDES):
        return None
    cells = [_cells(*size, stride) for stride in _YOLOX_STRIDES]
    if len(rows) != sum(map(len, cells)) or np.abs(rows[:, :2]).max() > min(size) / 2:
        return None  # centers in pixels reach the edge of the picture
    strides = np.repeat(_YOLOX_STRIDES, list(map(len, cells)))[:, np.newaxis]
    joined: Array = np.concatenate(
        [(rows[:, :2] + np.concatenate(cells)) * strides, np.exp(rows[:, 2:4]) * strides], axis=-1
    )
    return joined


def _cells(height: int, width: int, stride: int) -> Array:
    """Returns the column and the row of each cell, row by row, `[n, 2]`."""
    rows, columns = np.indices((height // stride, width // stride), np.float64)
    cells: Array = np.stack([columns.reshape(-1), rows.reshape(-1)], axis=-1)
    return cells


def key_points(values: Array, members: int) -> Array:
    """Returns the key points of each row: `[n, points, members]`."""
    shape: Sequence[int] = (len(values), values.shape[-1] // members, members)
    return values.reshape(shape).astype(np.float64)
