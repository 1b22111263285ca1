"""Builds an ONNX file and compares its outputs with ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from service.core.builds.numerics import ONNXRUNTIME
from service.core.verification.vectors import sample_inputs
from tests.support.compiling import compiled
from tests.support.onnx_reference import Reference

SAMPLES = 6
Pair = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def outputs(data: bytes, folder: Path, largest: float = np.inf) -> Iterator[Pair]:
    """Yields pairs of outputs: those of the built file and those of ONNX Runtime. Real inputs are at most `largest`."""
    source = folder / "model.onnx"
    source.write_bytes(data)
    model, reference = compiled(source, ONNXRUNTIME, folder), Reference(data, optimized=True)
    for sample in sample_inputs(model.signature, SAMPLES, seed=1):
        bounded = [np.clip(x, -largest, largest) if x.dtype.kind == "f" else x for x in sample]
        yield from zip(model.run(bounded), reference(bounded), strict=True)
