"""Limits of the sounds that a request may contain in place of a tensor. `service.runtime.sound` decodes them."""

from __future__ import annotations

MIN_RATE, MAX_RATE = 1000, 384_000  # in samples per second
MAX_SOUND_SAMPLES = 32 << 20  # of all channels: ten minutes of 48,000 samples per second


def is_wav(data: bytes) -> bool:
    """Returns true if the file begins like a WAV."""
    return data[:4] == b"RIFF" and data[8:12] == b"WAVE"
