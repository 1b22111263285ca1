"""Each numerics mode against the runtime that it is named after."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.numerics import LITERT_REFERENCE, MODES, XNNPACK
from service.core.vectors import EXTREMES, sample_inputs
from tests.support import litert
from tests.support.compiled import EXAMPLES
from tests.support.compiling import compiled
from tests.support.shared_data import TFLITE_MODELS, require_shared_data
from tests.support.tflite_catalog import MODELS

SAMPLES = sorted(EXAMPLES.glob("*.tflite"))
LARGE_BYTES = 200_000  # compiling one, and LiteRT's reference kernels, take minutes
COMPILED = [
    pytest.param(path, marks=pytest.mark.slow) if path.stat().st_size > LARGE_BYTES else path
    for path in [*SAMPLES, *TFLITE_MODELS]
]

# The expected outputs were made by the same LiteRT on another CPU: they hold XNNPACK to one answer everywhere.
PHOTOGRAPHED = {
    "mobilenet_v1_0.25_128_quant": 16,
    "mobilenet_v2_1.0_224_quant": 16,
    "tf2_mobilenet_v2_1.0_224_ptq": 16,
}


@pytest.mark.parametrize("name", MODELS)
def test_single_operator_equals_xnnpack(name: str) -> None:
    data = MODELS[name]()
    module, reference = import_model(data).module, litert.interpreter(data, reference=False)
    rng = np.random.default_rng(3)
    for _ in range(10):
        inputs = litert.random_inputs(reference, rng)
        for ours, theirs in zip(
            oracle.run(module, get_mode(XNNPACK), inputs), litert.run(reference, inputs), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("numerics", MODES)
@pytest.mark.parametrize("path", COMPILED, ids=lambda path: path.stem)
def test_compiled_model_equals_litert(path: Path, numerics: str, tmp_path: Path) -> None:
    """On 100 random inputs and all the extremes, every output."""
    model = compiled(path, numerics, tmp_path)
    reference = litert.interpreter(path.read_bytes(), reference=numerics == LITERT_REFERENCE)
    for index, inputs in enumerate(sample_inputs(model.signature, 100 + len(EXTREMES), seed=11)):
        for ours, theirs in zip(model.run(inputs), litert.run(reference, inputs), strict=True):
            np.testing.assert_array_equal(ours, theirs, f"input {index}")


def test_other_peoples_models_are_there() -> None:
    """Where they are not, the test above runs on the samples alone: this one says so, by being skipped."""
    require_shared_data()
    assert TFLITE_MODELS


@pytest.mark.slow
@pytest.mark.parametrize("numerics", MODES)
@pytest.mark.parametrize("name", PHOTOGRAPHED)
def test_photographs(name: str, numerics: str, tmp_path: Path) -> None:
    """All 100 photographs: the first inputs as they were stored, every one through the same preprocessing."""
    root = require_shared_data()
    model = compiled(root / "models" / "tflite" / f"{name}.tflite", numerics, tmp_path)
    with np.load(root / "expected" / f"{name}.npz") as expected:
        wanted = expected["out_ref" if numerics == LITERT_REFERENCE else "out_xnnpack"]
        stored, images = expected["input16"], [str(image) for image in expected["image"]]
    size = model.signature.inputs[0].shape[1]
    for index, image in enumerate(images):
        pixels = _slim(root / "images" / image, size)
        if index < len(stored):
            np.testing.assert_array_equal(pixels, stored[index])
        np.testing.assert_array_equal(model(pixels[np.newaxis])[0], wanted[index])


def _slim(path: Path, size: int) -> np.ndarray:
    """TF-slim's evaluation: the central 87.5 % of each side, resized without keeping the aspect."""
    from PIL import Image

    with Image.open(path) as file:
        image = file.convert("RGB")
    width, height = image.size
    crop_width, crop_height = int(width * 0.875), int(height * 0.875)
    left, top = (width - crop_width) // 2, (height - crop_height) // 2
    cropped = image.crop((left, top, left + crop_width, top + crop_height))
    return np.asarray(cropped.resize((size, size), Image.Resampling.BILINEAR), np.uint8)
