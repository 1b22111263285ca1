"""Compares each numerics mode with the runtime after which it is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.models.photographs import slim_pixels
from service.compiler.importers.facts import facts_of
from service.compiler.importers.tflite import import_model
from service.core.builds.numerics import LITERT_REFERENCE, XNNPACK
from service.core.target import TARGETS, detect_host
from service.core.verification.vectors import EXTREMES, sample_inputs
from tests.support import evidence, litert
from tests.support.compiled import EXAMPLES
from tests.support.compiling import compiled
from tests.support.conformance import assert_oracle_equals_litert
from tests.support.litert import MODES
from tests.support.shared_data import ROOT, TFLITE_MODELS, require_shared_data
from tests.support.tflite_catalog import MODELS

SAMPLES = sorted(EXAMPLES.glob("*.tflite"))
# larger models are slow tests, because compiling them and running LiteRT's reference kernels takes minutes
LARGE_BYTES = 200_000
RUNNABLE = [target.name for target in TARGETS if not target.missing_on(detect_host())]
COMPILED = [
    pytest.param(path, target, marks=pytest.mark.slow)
    if path.stat().st_size > LARGE_BYTES or number
    else (path, target)
    for path in [*SAMPLES, *TFLITE_MODELS]
    for number, target in enumerate(RUNNABLE)
]
if not TFLITE_MODELS:  # A skipped case keeps the earlier results of `make tables`, which fewer models must not replace.
    missing = pytest.mark.skip(f"no test data in {ROOT}; set OCTET_TEST_DATA to run this test")
    COMPILED.append(pytest.param(ROOT, RUNNABLE[0], marks=missing))

# The same LiteRT computed the expected outputs on another CPU. XNNPACK must therefore give the same results on every
# CPU.
PHOTOGRAPHED = {
    "mobilenet_v1_0.25_128_quant": 16,
    "mobilenet_v2_1.0_224_quant": 16,
    "tf2_mobilenet_v2_1.0_224_ptq": 16,
}


@pytest.mark.parametrize("name", MODELS)
def test_single_operator_equals_xnnpack(name: str) -> None:
    assert_oracle_equals_litert(MODELS[name](), samples=10, numerics=XNNPACK)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("numerics", MODES)
@pytest.mark.parametrize(("path", "target"), COMPILED, ids=lambda value: getattr(value, "stem", value))
def test_compiled_model_equals_litert(path: Path, target: str, numerics: str, tmp_path: Path) -> None:
    """Compares every output for 50 random inputs, 50 smooth ones and all extreme ones."""
    model = compiled(path, numerics, tmp_path, target)
    reference = litert.interpreter(path.read_bytes(), reference=numerics == LITERT_REFERENCE)
    samples = list(sample_inputs(model.signature, 100 + len(EXTREMES), seed=11))
    expected = [litert.run(reference, inputs) for inputs in samples]
    facts = facts_of(import_model(path.read_bytes()))
    evidence.compare_compiled(facts, target, [model.run(inputs) for inputs in samples], expected)


def test_other_peoples_models_are_there() -> None:
    """This test is skipped if the models of `shared/data` are missing. The previous test then uses only the samples."""
    require_shared_data()
    assert TFLITE_MODELS


@pytest.mark.slow
@pytest.mark.parametrize("numerics", MODES)
@pytest.mark.parametrize("name", PHOTOGRAPHED)
def test_photographs(name: str, numerics: str, tmp_path: Path) -> None:
    """Uses all 100 photographs. The first inputs are stored too. All of them go through the same preprocessing."""
    root = require_shared_data()
    model = compiled(root / "models" / "tflite" / f"{name}.tflite", numerics, tmp_path)
    with np.load(root / "expected" / f"{name}.npz") as expected:
        wanted = expected["out_ref" if numerics == LITERT_REFERENCE else "out_xnnpack"]
        stored, images = expected["input16"], [str(image) for image in expected["image"]]
        labels = expected["label_index"]
    answers = []
    size = model.signature.inputs[0].shape[1]
    for index, image in enumerate(images):
        pixels = slim_pixels(root / "images" / image, size)
        if index < len(stored):
            np.testing.assert_array_equal(pixels, stored[index])
        answers.append(model(pixels[np.newaxis])[0])
    evidence.note_accuracy(name, "tflite", numerics, wanted, np.array(answers), labels)
    np.testing.assert_array_equal(answers, wanted)
