"""Inputs for verification, made from a seed so that they need not be stored: extremes first, then random ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.core.signature import ModelSignature, TensorSpec

Sample = list[NDArray[Any]]


def sample_inputs(signature: ModelSignature, samples: int, seed: int = 0) -> list[Sample]:
    """`samples` inputs for a model: all-minimum, all-maximum, alternating, then random, the same on every machine.

    Integers take every value of their type; floats are those a quantized input can tell apart, four times as wide.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    return [[_sample(spec, index, rng) for spec in signature.inputs] for index in range(samples)]


def _sample(spec: TensorSpec, index: int, rng: np.random.Generator) -> NDArray[Any]:
    low, high = _range(spec)
    if index == 0:
        return np.full(spec.shape, low, spec.dtype)
    if index == 1:
        return np.full(spec.shape, high, spec.dtype)
    if index == 2:
        size = math.prod(spec.shape)
        return np.resize(np.array([high, low], spec.dtype), size).reshape(spec.shape)
    if spec.dtype.kind == "f":
        return rng.normal(0.0, 4.0, spec.shape).astype(spec.dtype)
    if spec.dtype.kind == "b":
        return rng.integers(0, 2, spec.shape).astype(spec.dtype)
    return rng.integers(low, high, spec.shape, dtype=spec.dtype, endpoint=True)


def _range(spec: TensorSpec) -> tuple[Any, Any]:
    if spec.dtype.kind == "f":
        return -1e6, 1e6
    if spec.dtype.kind == "b":
        return False, True
    info = np.iinfo(spec.dtype)
    return info.min, info.max
