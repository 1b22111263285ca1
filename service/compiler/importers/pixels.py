"""Checks that a file's mean and standard deviation are plausible for an input."""

from __future__ import annotations

import numpy as np

from service.core.errors import InvalidInput
from service.core.models.metadata import ModelMetadata
from service.core.models.signature import TensorSpec

_LEAST_OVERLAP = 0.5


def check_pixels(spec: TensorSpec, found: ModelMetadata) -> None:
    """Checks that the input can represent normalized pixels.

    According to `metadata_schema.fbs`, a quantized model has the mean and standard deviation of the float model, and
    the input of the quantized model is quantized after normalization. But the Task Library passes pixels to 8-bit
    inputs unchanged, so some files contain values that were never used, such as mean 0 and standard deviation 1. With
    these, most pixels would be clipped or become equal.

    Raises:
        InvalidInput: less than half of the range of normalized pixels is in the input's range, or the number of
            channels does not fit.
    """
    assert spec.image_axes is not None
    channels = spec.shape[spec.image_axes[2]]
    if not {len(found.mean), len(found.std)} <= {1, channels}:
        raise InvalidInput(f"the input {spec.name!r} has {channels} channels, which do not fit {found}")
    if spec.datatype == "FP32":
        return
    if spec.quantization is None:
        raise InvalidInput(f"the input {spec.name!r} has no scale for quantization")
    mean, std = np.array(found.mean), np.array(found.std)
    black, white = -mean / std, (1 - mean) / std
    limits = np.iinfo(spec.dtype)
    low, high = spec.quantization.real(np.array([limits.min, limits.max])).astype(np.float64)
    common = np.minimum(white, high) - np.maximum(black, low)
    if not (common >= _LEAST_OVERLAP * np.maximum(white - black, high - low)).all():
        raise InvalidInput(
            f"with {found}, pixels become values from {black.min():g} to {white.max():g}, but the input {spec.name!r} "
            f"can hold only {low:g} to {high:g}"
        )
