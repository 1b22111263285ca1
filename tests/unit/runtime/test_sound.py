"""Tests of sounds as model inputs: the values of each format, and that no file can harm the process."""

from __future__ import annotations

import random
import struct
from contextlib import suppress

import numpy as np
import pytest

from service.core.errors import InvalidInput, InvalidTensor, OctetError, TooLarge, UnsupportedFormat
from service.core.models.metadata import ModelMetadata
from service.core.models.signature import Quantization
from service.runtime.sound import SoundInput, Stopped, decode
from tests.support.sounds import wav

soxr = pytest.importorskip("soxr", reason="soxr and soundfile are not installed")
RATE = ModelMetadata(sampling_rate=16_000)
RAMP = np.linspace(-1, 0.99, 200)


def spec(*lengths: int, datatype: str = "FP32", quantization: Quantization | None = None) -> SoundInput:
    return SoundInput("sound", datatype, tuple((1, length) for length in lengths), quantization)


@pytest.mark.parametrize(
    ("bits", "is_float"), [(8, False), (16, False), (24, False), (32, False), (32, True), (64, True)]
)
def test_samples_are_divided_by_the_largest_one(bits: int, is_float: bool) -> None:
    found = decode(wav(RAMP, bits=bits, is_float=is_float), spec(200), RATE)
    expected = RAMP if is_float else np.clip(np.rint(RAMP * 2.0 ** (bits - 1)), None, 2.0 ** (bits - 1) - 1)
    expected = expected if is_float else expected / 2.0 ** (bits - 1)
    assert found.tensor.dtype == np.float32
    assert np.array_equal(found.tensor[0], expected.astype(np.float32))
    assert (found.samples, found.is_truncated) == (200, False)


def test_channels_are_averaged() -> None:
    stereo = np.stack([np.full(50, 0.5), np.full(50, -0.25)], axis=1)
    assert decode(wav(stereo), spec(50), RATE).tensor.tolist() == [[0.125] * 50]


def test_another_rate_is_resampled_as_soxr_does() -> None:
    samples = np.sin(np.arange(44_100) / 20)
    found = decode(wav(samples, 44_100, 32, is_float=True), spec(16_000), RATE)
    expected = soxr.resample(samples.astype(np.float32), 44_100, 16_000)
    assert found.samples == len(expected)
    assert np.array_equal(found.tensor[0], expected[:16_000])


def test_a_short_sound_is_followed_by_zeros_and_a_long_one_is_truncated() -> None:
    short = decode(wav(np.full(3, 0.5)), spec(5), RATE)
    assert short.tensor.tolist() == [[0.5, 0.5, 0.5, 0, 0]]
    assert not short.is_truncated
    long = decode(wav(np.full(9, 0.5)), spec(5), RATE)
    assert (long.tensor.tolist(), long.samples, long.is_truncated) == ([[0.5] * 5], 9, True)


@pytest.mark.parametrize(("count", "length"), [(1, 4), (4, 4), (5, 8), (9, 8)])
def test_the_smallest_length_that_fits_is_used(count: int, length: int) -> None:
    assert decode(wav(np.full(count, 0.5)), spec(4, 8), RATE).tensor.shape == (1, length)


def test_integer_inputs() -> None:
    data = wav(np.array([-1, 0, 0.5]))
    assert decode(data, spec(4, datatype="INT16"), RATE).tensor.tolist() == [[-32768, 0, 16384, 0]]
    scaled = spec(4, datatype="INT16", quantization=Quantization(0.01, 5))
    assert decode(data, scaled, RATE).tensor.tolist() == [[-95, 5, 55, 5]]


def test_a_waveform_is_standardized_before_zeros_follow() -> None:
    found = decode(wav(np.array([0.5, -0.5])), spec(3), ModelMetadata(sampling_rate=16_000, standardize=True)).tensor
    assert found[0].tolist() == pytest.approx([1, -1, 0], abs=1e-5)


def test_a_model_without_a_rate_takes_no_sound() -> None:
    with pytest.raises(InvalidTensor, match="sampling rate is missing"):
        decode(wav(RAMP), spec(200))


@pytest.mark.parametrize("declared", [0, 0xFFFF_FFFF, 0x7FFF_F000])
def test_a_size_that_was_not_known_is_that_of_the_file(declared: int) -> None:
    if declared == 0:
        with pytest.raises(InvalidInput, match="no samples"):
            decode(wav(RAMP, declared=declared), spec(200), RATE)
        return
    assert decode(wav(RAMP, declared=declared), spec(200), RATE).samples == 200


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (wav(RAMP, declared=401), "declares 401 bytes of samples, but 400 follow"),
        (wav(RAMP)[:-7], "declares 400 bytes of samples, but 393 follow"),
        (wav(RAMP)[:44], "declares 400 bytes of samples, but 0 follow"),
        (wav(RAMP)[:20], "contains no samples"),
        (wav(RAMP[:0]), "contains no samples"),
        (wav(RAMP, rate=1), "1 samples per second"),
        (wav(RAMP, rate=2**31), "damaged|samples per second"),
        (wav(np.array([np.nan]), bits=32, is_float=True), "not finite"),
    ],
)
def test_damaged_sounds_are_refused(data: bytes, error: str) -> None:
    with pytest.raises(InvalidInput, match=error):
        decode(data, spec(200), RATE)


def test_other_data_is_not_a_sound() -> None:
    with pytest.raises(UnsupportedFormat, match="not a WAV"):
        decode(b"fLaC" + bytes(100), spec(200), RATE)


def test_long_sounds_are_refused() -> None:
    with pytest.raises(TooLarge, match="or more"):
        decode(wav(np.zeros(200_000), rate=1000, bits=8), spec(1), ModelMetadata(sampling_rate=384_000))
    data = wav(np.zeros(1), bits=8)
    layout = struct.pack("<HHIIHH", 1, 200, 16_000, 200 * 16_000, 200, 8)
    data = data[:20] + layout + data[36:40] + struct.pack("<I", 200_000) + bytes(200_000)
    assert decode(data, spec(1000), RATE).samples == 1000


def test_decoding_stops_if_the_sound_is_withdrawn() -> None:
    with pytest.raises(Stopped):
        decode(wav(RAMP), spec(200), RATE, is_withdrawn=lambda: True)


def test_damaged_files_raise_errors_only() -> None:
    choice = random.Random(0)
    files = [wav(RAMP, bits=bits) for bits in (8, 16, 24)]
    for _ in range(300):
        data = bytearray(choice.choice(files))
        for _ in range(choice.randint(1, 4)):
            data[choice.randrange(60)] = choice.randrange(256)
        with suppress(OctetError):
            decode(bytes(data[: choice.randint(0, len(data))] if choice.random() < 0.3 else data), spec(50, 400), RATE)
