"""WAV files for tests, written without the library that reads them."""

from __future__ import annotations

import struct

import numpy as np

from service.core.models.arrays import Array


def wav(
    samples: Array, rate: int = 16_000, bits: int = 16, *, is_float: bool = False, declared: int | None = None
) -> bytes:
    """Returns a WAV of samples from -1 to 1, `[samples]` or `[samples, channels]`.

    Args:
        declared: the size of the samples that the header declares; None for the right one.
    """
    frames = samples[:, None] if samples.ndim == 1 else samples
    if is_float:
        data = frames.astype("<f4" if bits == 32 else "<f8").tobytes()
    else:
        whole = np.clip(np.rint(frames * 2.0 ** (bits - 1)), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1).astype("<i8")
        if bits == 8:
            data = (whole + 128).astype(np.uint8).tobytes()
        else:
            data = np.frombuffer(whole.tobytes(), np.uint8).reshape(-1, 8)[:, : bits // 8].tobytes()
    channels, width = frames.shape[1], bits // 8
    layout = struct.pack(
        "<HHIIHH", 3 if is_float else 1, channels, rate, rate * channels * width & 0xFFFF_FFFF, channels * width, bits
    )
    size = len(data) if declared is None else declared
    body = b"WAVEfmt " + struct.pack("<I", 16) + layout + b"data" + struct.pack("<I", size) + data
    return b"RIFF" + struct.pack("<I", min(len(body), 0xFFFF_FFFF)) + body
