"""Converts a sound (WAV: PCM of 8, 16, 24 or 32 bits, float, µ-law, A-law, ADPCM) to the input of a model of waveforms.

The channels are averaged, the result is resampled to the model's rate (soxr, high quality), and is then written as

    FP32   the sample, from -1 to 1: integer samples are divided by 2^(bits - 1)
    INT16  sample / scale + zero_point if the input has a scale, otherwise 32768 * sample, rounded and clipped

If the model's metadata has `standardize`, the waveform is shifted and scaled to mean 0 and variance 1 first.

A sound that is shorter than the input is followed by zeros. Of a longer one, the beginning is used, and the result
reports that it was truncated. If the input has several lengths, the smallest one that fits is used.

The data may be hostile: libsndfile (the package soundfile) reads it in a process that is locked in, in blocks, up to
`MAX_SOUND_SAMPLES`. Sizes in the file are compared with the data that follows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from service.core.errors import InvalidInput, InvalidTensor, OctetError, TooLarge, Unsupported, UnsupportedFormat
from service.core.models.arrays import Array
from service.core.models.metadata import NOTHING, ModelMetadata
from service.core.models.signature import DATATYPES, Quantization
from service.core.models.sound import MAX_RATE, MAX_SOUND_SAMPLES, MIN_RATE, is_wav

if TYPE_CHECKING:
    from soundfile import SoundFile

_BLOCK_SAMPLES = 1 << 18
_UNKNOWN_BYTES = 0x7FFF_F000  # programs write such a size, or 0, if they do not know it in advance
_LEAST_VARIANCE = 1e-7  # that transformers' Wav2Vec2FeatureExtractor adds


@dataclass(frozen=True)
class SoundInput:
    """An input of a model of waveforms.

    Attributes:
        shapes: the possible shapes, in ascending order: one for each bucket, or only one. All dimensions but the last
            are 1.
    """

    name: str
    datatype: str
    shapes: tuple[tuple[int, ...], ...]
    quantization: Quantization | None = None

    @staticmethod
    def from_json(members: Any) -> SoundInput:
        scale = members.get("quantization")
        quantization = Quantization(scale["scale"], scale["zero_point"]) if scale else None
        return SoundInput(members["name"], members["datatype"], tuple(map(tuple, members["shapes"])), quantization)


@dataclass(frozen=True)
class Waveform:
    """A sound as an input.

    Attributes:
        tensor: of one of the input's shapes.
        samples: the number of samples at the model's rate, before the sound was truncated or zeros were added.
    """

    tensor: Array
    samples: int
    is_truncated: bool


def decode(
    data: bytes,
    spec: SoundInput,
    metadata: ModelMetadata = NOTHING,
    *,
    is_withdrawn: Callable[[], bool] = lambda: False,
) -> Waveform:
    """Decodes the sound in `data` into the input `spec`.

    Args:
        metadata: has the model's sampling rate.
        is_withdrawn: called from time to time; once it returns true, the decoding stops.

    Raises:
        Stopped: `is_withdrawn` has returned true.
        InvalidTensor: the input does not take a waveform, or the model's sampling rate is missing.
        Unsupported: a package is missing.
        UnsupportedFormat: `data` is not a WAV, or has an encoding that is not supported.
        TooLarge: the sound has more than `MAX_SOUND_SAMPLES` samples.
        InvalidInput: `data` is damaged.
    """
    if spec.datatype not in ("FP32", "INT16"):
        raise InvalidTensor(f"input {spec.name!r} does not take a sound", tensor=spec.name)
    if metadata.sampling_rate is None:
        raise InvalidTensor(
            f"input {spec.name!r} cannot take a sound, because the model's sampling rate is missing",
            tensor=spec.name,
            hint="octet push --sampling-rate 16000 sets it",
        )
    mono, rate = _mono(data, is_withdrawn)
    samples = _resampled(mono, rate, metadata.sampling_rate, is_withdrawn)
    longest = spec.shapes[-1]
    used = samples[: longest[-1]]
    if metadata.standardize and used.size:
        used = (used - used.mean()) / np.sqrt(used.var() + np.float32(_LEAST_VARIANCE))
    shape = next((each for each in spec.shapes if each[-1] >= len(used)), longest)
    stored = _stored(used, spec)
    tensor = np.zeros(shape, stored.dtype)
    tensor.reshape(-1)[: len(stored)] = stored
    if spec.quantization is not None:
        tensor.reshape(-1)[len(stored) :] = spec.quantization.zero_point
    return Waveform(tensor, len(samples), len(samples) > len(used))


class Stopped(Exception):
    """The sound was withdrawn while it was decoded."""


def _mono(data: bytes, is_withdrawn: Callable[[], bool]) -> tuple[Array, int]:
    """Returns the average of the channels, float32 `[samples]`, and its rate."""
    try:
        import soundfile
        import soxr  # noqa: F401
    except ImportError as error:
        raise Unsupported(
            f"sounds need the package {error.name}", hint="pip install 'octet-serve[worker]' installs it"
        ) from error

    if not is_wav(data):
        raise UnsupportedFormat("the data is not a WAV", hint="convert it to WAV: ffmpeg -i sound.mp3 sound.wav")
    _check_sizes(data)
    try:
        with soundfile.SoundFile(BytesIO(data)) as sound:
            _check_header(sound)
            blocks: list[Array] = []
            count = 0
            frames = max(1, _BLOCK_SAMPLES // sound.channels)
            while len(block := sound.read(frames, "float32", always_2d=True)):
                if is_withdrawn():
                    raise Stopped
                count += len(block)
                if count * sound.channels > MAX_SOUND_SAMPLES:
                    raise _too_large(count)
                blocks.append(block.mean(axis=1, dtype=np.float32) if sound.channels > 1 else block[:, 0])
            rate = int(sound.samplerate)
    except (OctetError, Stopped):
        raise
    except Exception as error:  # soundfile raises several types of errors for damaged files
        raise InvalidInput(f"the sound is damaged: {error}") from error
    if not blocks:
        raise InvalidInput("the sound contains no samples")
    mono: Array = np.concatenate(blocks)
    if not np.isfinite(mono).all():
        raise InvalidInput("the sound contains samples that are not finite")
    return mono, rate


def _check_sizes(data: bytes) -> None:
    """Raises `InvalidInput` if the file declares more data than follows. A size of 0 or nearly 4 GB means that the
    program that wrote it did not know the size.
    """
    offset = 12
    while offset + 8 <= len(data):
        name, size = data[offset : offset + 4], int.from_bytes(data[offset + 4 : offset + 8], "little")
        follows = len(data) - offset - 8
        if name == b"data":
            if size > follows and 0 < size < _UNKNOWN_BYTES:
                raise InvalidInput(f"the sound is damaged: it declares {size} bytes of samples, but {follows} follow")
            return
        if size > follows:
            break
        offset += 8 + size + size % 2
    raise InvalidInput("the sound is damaged: it contains no samples")


def _check_header(sound: SoundFile) -> None:
    if not MIN_RATE <= sound.samplerate <= MAX_RATE:
        raise InvalidInput(
            f"the sound has {sound.samplerate} samples per second", hint=f"resample it to {MIN_RATE} to {MAX_RATE}"
        )
    if sound.frames * sound.channels > MAX_SOUND_SAMPLES:
        raise _too_large(sound.frames)


def _too_large(frames: int) -> TooLarge:
    return TooLarge(
        f"the sound has {frames} samples or more; the limit for all channels is {MAX_SOUND_SAMPLES}",
        hint="send a part of it",
    )


def _resampled(samples: Array, rate: int, wanted: int, is_withdrawn: Callable[[], bool]) -> Array:
    if rate == wanted:
        return samples
    import soxr

    if len(samples) * wanted > MAX_SOUND_SAMPLES * rate:
        raise _too_large(len(samples) * wanted // rate)
    stream = soxr.ResampleStream(rate, wanted, 1, dtype="float32")
    parts: list[Array] = []
    for start in range(0, len(samples), _BLOCK_SAMPLES):
        if is_withdrawn():
            raise Stopped
        end = start + _BLOCK_SAMPLES
        parts.append(stream.resample_chunk(samples[start:end], last=end >= len(samples)))
    resampled: Array = np.concatenate(parts)
    return resampled


def _stored(samples: Array, spec: SoundInput) -> Array:
    dtype = np.dtype(DATATYPES[spec.datatype])
    if dtype.kind == "f":
        floats: Array = samples.astype(dtype)
        return floats
    limits = np.iinfo(dtype)
    wide = samples.astype(np.float64)
    if spec.quantization is None:
        rounded = np.rint(wide * -float(limits.min))
    else:
        rounded = np.rint(wide / spec.quantization.scale) + spec.quantization.zero_point
    stored: Array = np.clip(rounded, limits.min, limits.max).astype(dtype)
    return stored
