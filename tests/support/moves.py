"""Data movement as it occurs in networks. The value of each array element is its own number."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from service.core.models.arrays import Array


@st.composite
def move_elements(draw: st.DrawFn, parts: list[Array]) -> Array:
    """Concatenates parts `[N, H, W, C]`, and then shuffles, cuts or transposes the result as networks do."""
    axis = draw(st.sampled_from([1, 3])) if len({part.shape[3] for part in parts}) == 1 else 3
    whole = np.concatenate(parts, axis)
    match draw(st.sampled_from(["channels", "shuffle", "pixels", "patches", "rows", "transposed", "planes"])):
        case "channels":
            first = draw(st.integers(0, min(5, whole.shape[3] - 1)))
            return whole[..., first:]
        case "shuffle" if whole.shape[3] % 2 == 0:
            *outer, channels = whole.shape
            shuffled = whole.reshape(*outer, 2, channels // 2).swapaxes(-1, -2).reshape(whole.shape)
            return shuffled[..., : draw(st.sampled_from([channels, max(1, channels // 2)]))]
        case "pixels":
            return whole[:, ::2, ::-1]
        case "transposed":
            return whole.transpose(0, 3, 1, 2)
        case "planes":  # a tensor with channels first, interpreted as an image
            batch, height, width, channels = whole.shape
            return whole.reshape(batch, channels, height, width).transpose(0, 2, 3, 1)
        case "patches" if whole.shape[2] % 2 == 0:
            batch, height, width, channels = whole.shape
            return whole.reshape(batch, height, width // 2, 2, channels).transpose(0, 1, 3, 2, 4)
    return whole.reshape(whole.shape[0], -1, 1, whole.shape[3])
