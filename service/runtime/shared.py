"""The tensors of one call in memory that two processes share, neither of which trusts the other's sizes.

Both processes have the model's signature, which determines the offset of each tensor. The memory is sealed: it can
neither grow nor shrink, so that a reader cannot be made to read beyond the end of the memory.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
from collections.abc import Sequence

import numpy as np

from service.core.artifacts.call_plan import ALIGNMENT_BYTES
from service.core.errors import CorruptBlob
from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature, TensorSpec

_MOST_ELEMENTS = 1 << 40


class SharedTensors:
    """The mapped tensors.

    Attributes:
        descriptor: the descriptor of the memory, which the creator sends to the other process.
        inputs, outputs: in the signature's order; 64-byte aligned, C-ordered, writeable by both.
    """

    def __init__(self, signature: ModelSignature, descriptor: int) -> None:
        """Maps memory that `create` allocated in another process. Raises `CorruptBlob` if a tensor's shape is not
        valid.
        """
        self.descriptor = descriptor
        memory = mmap.mmap(descriptor, bytes_of(signature))
        arrays, at = [], 0
        for spec in _tensors(signature):
            elements = np.frombuffer(memory, spec.dtype, _elements(spec), at)
            arrays.append(elements.reshape(spec.shape))
            at += _room(spec)
        split = len(signature.inputs)
        self.inputs: Sequence[Array] = arrays[:split]
        self.outputs: Sequence[Array] = arrays[split:]

    @staticmethod
    def create(signature: ModelSignature) -> SharedTensors:
        """Allocates memory, for a model with static shapes. Raises `CorruptBlob` if a tensor's shape is not valid."""
        descriptor = os.memfd_create("tensors", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, bytes_of(signature))
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        return SharedTensors(signature, descriptor)


def bytes_of(signature: ModelSignature) -> int:
    return sum(map(_room, _tensors(signature)))


def _tensors(signature: ModelSignature) -> Sequence[TensorSpec]:
    return (*signature.inputs, *signature.outputs)


def _elements(spec: TensorSpec) -> int:
    elements = math.prod(spec.shape)
    if min(spec.shape, default=0) < 0 or elements > _MOST_ELEMENTS:
        raise CorruptBlob(f"{spec.name!r} cannot have the shape {list(spec.shape)}")
    return elements


def _room(spec: TensorSpec) -> int:
    """Returns the size of a tensor's slot in bytes. The size is at least one cache line, so that an empty tensor is
    within the memory too.
    """
    size_bytes = _elements(spec) * spec.dtype.itemsize
    return max(1, -(-size_bytes // ALIGNMENT_BYTES)) * ALIGNMENT_BYTES
