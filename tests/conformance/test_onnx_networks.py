"""Networks that PyTorch exported and ONNX Runtime quantized (`scripts/make_onnx_fixtures.py`), compared with ONNX
Runtime on the same file. There are two forms of static quantization (conversions around float operators, and quantized
operators), and dynamic quantization.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.batch import batched
from service.compiler.qnn.graph import main_of, shape_of
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.models.signature import ModelSignature
from tests.support import evidence
from tests.support.compiling import compiled
from tests.support.onnx_reference import Reference

FIXTURES = sorted((Path(__file__).parents[1] / "fixtures" / "onnx").glob("*.onnx"))
SAMPLES, WORDS = 8, 40
# ONNX Runtime adds a few hundred float32 terms in its own order. So a value close to the middle between two steps may
# be quantized to the other step, which changes the following layers.
TOLERANCE = 2e-6
Arrays = list[np.ndarray[Any, Any]]


def inputs(signature: ModelSignature, seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    return [
        rng.integers(0, WORDS, spec.shape) if spec.datatype == "INT64" else rng.uniform(-2, 2, spec.shape).astype("f4")
        for spec in signature.inputs
    ]


def test_the_fixtures_are_there() -> None:
    assert len(FIXTURES) == 6


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_a_network(path: Path) -> None:
    imported, reference = import_model(path.read_bytes()), Reference(path, optimized=True)
    samples = [inputs(imported.signature, seed) for seed in range(SAMPLES)]
    actual = oracle.run_all(imported.module, get_mode(ONNXRUNTIME), samples)
    expected = [reference(sample) for sample in samples]
    assert len({each[0].tobytes() for each in expected}) == SAMPLES, "the network gives the same output for every input"
    evidence.compare(imported, ONNXRUNTIME, actual, expected, steps=TOLERANCE if "dynamic" in path.stem else 0)


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_several_samples_stay_apart(path: Path) -> None:
    module = batched(import_model(path.read_bytes()).module, 3)
    assert all(shape_of(end)[0] == 3 for end in main_of(module).params)


@pytest.mark.slow
@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_a_compiled_network(path: Path, tmp_path: Path) -> None:
    """Compiled code gives the oracle's results. Other tests compare the oracle with ONNX Runtime."""
    model, reference = compiled(path, ONNXRUNTIME, tmp_path), Reference(path, optimized=True)
    samples = [inputs(model.signature, seed) for seed in range(SAMPLES)]
    steps = TOLERANCE if "dynamic" in path.stem else 0
    actual, expected = [model.run(sample) for sample in samples], [reference(sample) for sample in samples]
    seen = evidence.differences(actual, expected)
    assert seen[2] <= steps, seen
