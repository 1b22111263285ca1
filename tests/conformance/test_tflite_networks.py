"""Whole networks that TensorFlow's converter wrote (`scripts/make_tflite_fixtures.py`), compared with LiteRT."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import coverage, oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE, XNNPACK
from service.core.target import TARGETS, detect_host
from service.core.verification.vectors import EXTREMES, sample_inputs
from tests.support import litert
from tests.support.conformance import assert_equals_litert
from tests.support.selected import run_selected

FIXTURES = Path(__file__).parents[1] / "fixtures" / "tflite"
HERE = [target for target in TARGETS if target.runs_on(detect_host())]
NETWORKS = [
    # LiteRT's reference kernels do not support the version of TILE in the file.
    ("detector", XNNPACK),
    ("keywords", LITERT_REFERENCE),
    ("keywords", XNNPACK),
    ("recurrent", LITERT_REFERENCE),
    ("recurrent", XNNPACK),
    ("segmentation", LITERT_REFERENCE),
    ("streaming", LITERT_REFERENCE),
    ("streaming", XNNPACK),
    ("transformer", LITERT_REFERENCE),
    ("transformer", XNNPACK),
]


@pytest.mark.parametrize(("name", "numerics"), NETWORKS)
def test_network_equals_litert(name: str, numerics: str) -> None:
    data = (FIXTURES / f"{name}.tflite").read_bytes()
    inputs = sample_inputs(import_model(data).signature, 4 + len(EXTREMES), seed=3)
    assert_equals_litert(data, numerics, inputs)


def test_segmentation_is_one_step_from_xnnpack() -> None:
    """Keras computes the output shape of a TRANSPOSE_CONV so that it fits any batch size. The delegate does not compute
    such a node, so LiteRT rounds twice in that layer, whereas this mode rounds once.
    """
    data = (FIXTURES / "segmentation.tflite").read_bytes()
    imported, loaded = import_model(data), litert.interpreter(data, reference=False)
    for sample in sample_inputs(imported.signature, 4, seed=3):
        (theirs,), (ours,) = litert.run(loaded, sample), oracle.run(imported.module, get_mode(XNNPACK), sample)
        assert np.abs(ours.astype(int) - theirs).max() <= 1


# The sums have some hundred float32 terms. If rounding changes an activation by one of its 255 steps, the error is
# larger.
HYBRID = 2e-3


@pytest.mark.parametrize("numerics", [LITERT_REFERENCE, XNNPACK])
def test_hybrid_network_is_litert_within_rounding(numerics: str) -> None:
    data = (FIXTURES / "keywords_hybrid.tflite").read_bytes()
    imported, loaded = import_model(data), litert.interpreter(data, reference=numerics == LITERT_REFERENCE)
    assert coverage.report(imported.module)["integer_percent"] > 70
    for sample in sample_inputs(imported.signature, 4, seed=3):
        (theirs,), (ours,) = litert.run(loaded, sample), oracle.run(imported.module, get_mode(numerics), sample)
        np.testing.assert_allclose(ours, theirs, atol=HYBRID * np.abs(theirs).max())


@pytest.mark.skipif(not HERE, reason="no target runs here")
@pytest.mark.parametrize(
    ("name", "numerics"),
    [
        ("keywords", XNNPACK),
        ("keywords_hybrid", LITERT_REFERENCE),
        ("keywords_hybrid", XNNPACK),
        ("segmentation", XNNPACK),
        pytest.param("detector", LITERT_REFERENCE, marks=pytest.mark.slow),
        pytest.param("transformer", XNNPACK, marks=pytest.mark.slow),
    ],
)
def test_compiled_network_equals_the_oracle(name: str, numerics: str, tmp_path: Path) -> None:
    imported = import_model((FIXTURES / f"{name}.tflite").read_bytes())
    (sample,) = sample_inputs(imported.signature, 2, seed=5)[1:]
    selection, outputs = run_selected(imported.module, HERE[0], numerics, sample, tmp_path)
    for ours, theirs in zip(outputs, oracle.run(imported.module, get_mode(numerics), sample), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert selection.layers
