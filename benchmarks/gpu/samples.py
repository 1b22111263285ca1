"""Generates the same inputs on two machines, and computes digests of outputs."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np

from service.core.artifacts.buffers import aligned_empty
from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature, TensorSpec

ABOUT_FILE = "about.json"  # written by `prepare`


def inputs_of(signature: ModelSignature) -> list[Array]:
    """Returns integers over all values, and reals between -2 and 2, from a generator whose numbers NumPy guarantees to
    keep.
    """
    return [_input(spec, np.random.RandomState(index)) for index, spec in enumerate(signature.inputs)]


def _input(spec: TensorSpec, random: np.random.RandomState) -> Array:
    array: Array = aligned_empty(spec.shape, spec.dtype)
    if array.dtype.kind == "f":
        array[...] = (random.randint(0, 1 << 16, array.size).astype(np.float32) / (1 << 14) - 2).reshape(array.shape)
    else:
        given = np.frombuffer(random.bytes(math.prod(array.shape) * array.itemsize), array.dtype)
        array[...] = given.reshape(array.shape)
    return array


def digest(outputs: Sequence[Array]) -> str:
    """Returns a digest of the bytes of all outputs."""
    return digest_of_bytes([np.ascontiguousarray(output).tobytes() for output in outputs])


def digest_of_bytes(outputs: Sequence[bytes]) -> str:
    return hashlib.sha256(b"".join(outputs)).hexdigest()
