"""Tests of tensors in memory that two processes share."""

from __future__ import annotations

import os

import numpy as np
import pytest

from service.core.artifacts.buffers import is_aligned
from service.core.artifacts.call_plan import ALIGNMENT_BYTES
from service.core.errors import CorruptBlob
from service.core.models.signature import ModelSignature, TensorSpec
from service.runtime.shared import SharedTensors, bytes_of

SIGNATURE = ModelSignature(
    (TensorSpec("a", "INT8", (1, 3)), TensorSpec("b", "FP32", (2, 5)), TensorSpec("empty", "INT32", (0, 4))),
    (TensorSpec("c", "INT64", (7,)), TensorSpec("scalar", "UINT8", ())),
)


def test_one_process_reads_what_the_other_writes() -> None:
    mine = SharedTensors.create(SIGNATURE)
    theirs = SharedTensors(SIGNATURE, mine.descriptor)
    for number, array in enumerate((*mine.inputs, *mine.outputs)):
        array[...] = number
    for number, (spec, array) in enumerate(
        zip((*SIGNATURE.inputs, *SIGNATURE.outputs), (*theirs.inputs, *theirs.outputs), strict=True)
    ):
        assert (array.shape, array.dtype) == (spec.shape, spec.dtype)
        assert is_aligned(array)
        assert np.all(array == number)
    os.close(mine.descriptor)


def test_the_memory_cannot_be_resized() -> None:
    """If the memory could be resized, the other process could truncate it, and a reader would be killed by SIGBUS."""
    shared = SharedTensors.create(SIGNATURE)
    for size in (0, bytes_of(SIGNATURE) + ALIGNMENT_BYTES):
        with pytest.raises(PermissionError):
            os.ftruncate(shared.descriptor, size)
    os.close(shared.descriptor)


@pytest.mark.parametrize("shape", [(-1, 4), (1 << 40, 1 << 40), (1 << 62,)])
def test_an_invalid_shape_is_rejected(shape: tuple[int, ...]) -> None:
    with pytest.raises(CorruptBlob, match="'x' cannot have the shape"):
        SharedTensors.create(ModelSignature((TensorSpec("x", "INT8", shape),), ()))
