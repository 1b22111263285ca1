"""Imports an ONNX file and compares its outputs with ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.verification.vectors import sample_inputs
from tests.support.compiling import compiled
from tests.support.conformance import is_to_be_compiled
from tests.support.onnx_reference import Reference

SAMPLES = 6
Pair = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def outputs(data: bytes, folder: Path, largest: float = np.inf) -> Iterator[Pair]:
    """Yields pairs of outputs: the oracle's and ONNX Runtime's. In every sixth test (`is_to_be_compiled`), also yields
    pairs of the built file's outputs and ONNX Runtime's.

    Args:
        largest: the largest real input.
    """
    imported, reference = import_model(data), Reference(data, optimized=True)
    samples = [
        [np.clip(x, -largest, largest) if x.dtype.kind == "f" else x for x in sample]
        for sample in sample_inputs(imported.signature, SAMPLES, seed=1)
    ]
    expected = [reference(sample) for sample in samples]
    actual = oracle.run_all(imported.module, get_mode(ONNXRUNTIME), samples)
    if is_to_be_compiled():
        source = folder / "model.onnx"
        source.write_bytes(data)
        model = compiled(source, ONNXRUNTIME, folder)
        actual += [model.run(sample) for sample in samples]
        expected += expected
    for ours, theirs in zip(actual, expected, strict=True):
        yield from zip(ours, theirs, strict=True)
