"""Weights of 2, 4 or 8 bits, packed in bytes."""

from __future__ import annotations

import numpy as np

from service.core.models.arrays import Array

BITS = (2, 4, 8)


def unpacked(packed: Array, bits: int) -> Array:
    """Returns the values of bytes along the last axis, uint8. The first value of a byte is in its lowest bits.

    Args:
        packed: `[…, N]` uint8. The result is `[…, N * 8 / bits]`.
    """
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    values = (packed[..., np.newaxis] >> shifts) & np.uint8((1 << bits) - 1)
    return np.asarray(values.reshape(*packed.shape[:-1], -1))
