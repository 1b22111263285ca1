"""Whole models give the same bytes on every target. If this host cannot run a target's code, an emulated CPU runs it,
with the runtime built for that CPU.

The build for this host is verified against the oracle. The builds for all other targets must compute the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from service.cache import OciLayout
from service.compiler.build.pipeline import CompileRequest, compile_model
from service.compiler.importers.detect import format_of
from service.core.builds.numerics import DEFAULT_MODE
from service.core.builds.options import with_shapes
from service.core.digest import digest_of_file
from service.core.models.arrays import Array
from service.core.settings import Settings
from service.core.target import TARGETS, detect_host, parse_target
from service.core.verification.vectors import EXTREMES, sample_inputs
from tests.support import emulated, emulated_models
from tests.support.compiled import EXAMPLES
from tests.support.compiling import Quiet, compiled
from tests.support.shared_data import ROOT

FIXTURES = Path(__file__).parents[1] / "fixtures" / "tflite"
SAMPLES = 3 + len(EXTREMES)
SMALL = EXAMPLES / "digits_int8.tflite"
_SHARED = [
    path
    for kind in ("tflite/*.tflite", "onnx/*.?8s8.onnx", "torch/mobilenet*.pt")
    for path in sorted((ROOT / "models").glob(kind))
]
_OTHERS = (
    FIXTURES / "keywords.tflite",
    *(path for path in sorted(EXAMPLES.glob("*.tflite")) if path != SMALL),
    *_SHARED,
)
OTHERS = [pytest.param(path, marks=pytest.mark.slow) for path in _OTHERS]
HERE = [target.name for target in TARGETS if target.runs_on(detect_host()) and target is not detect_host().best]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("path", [SMALL, *OTHERS], ids=lambda path: path.stem)
def test_model_computes_the_same_bytes_for_every_target(path: Path, tmp_path: Path) -> None:
    missing = sorted({emulated_models.missing(target) for target in emulated.CPUS} - {""})
    with path.open("rb") as source:
        numerics = DEFAULT_MODE[format_of(source)]
    options = with_shapes({"": [1, 3, 224, 224]}) if path.suffix == ".pt" else {}  # such files do not contain the shape
    model = compiled(path, numerics, tmp_path, options=options)
    inputs = sample_inputs(model.signature, SAMPLES, seed=11)
    expected = [model.run(sample) for sample in inputs]
    for target in HERE:
        folder = tmp_path / target
        folder.mkdir()
        other = compiled(path, numerics, folder, target, options)
        assert_equal([other.run(sample) for sample in inputs], expected, target)
    for target in emulated.CPUS:
        if emulated_models.missing(target):
            continue
        request = CompileRequest(path, digest_of_file(path), parse_target(target), numerics, options)
        folder, scratch = tmp_path / target, tmp_path / f"{target}-scratch"
        scratch.mkdir()
        compile_model(request, OciLayout(folder), scratch, Quiet(), Settings())
        assert_equal(emulated_models.run(target, [folder], model.signature, inputs), expected, target)
    if missing:
        pytest.skip("; ".join(missing))


def assert_equal(answers: Sequence[Sequence[Array]], expected: Sequence[Sequence[Array]], target: str) -> None:
    for answer, values in zip(answers, expected, strict=True):
        for output, wanted in zip(answer, values, strict=True):
            np.testing.assert_array_equal(output, wanted, err_msg=target)
