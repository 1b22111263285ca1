"""Whole models on emulated ARM CPUs, by the runtime built for aarch64: one model, every target, the same bytes.

A build for this host is verified against the oracle; what it computes is what every other target has to.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.cache import OciLayout
from service.compiler.importers.detect import format_of
from service.compiler.pipeline import CompileRequest, compile_model
from service.core.digest import digest_of_file
from service.core.numerics import DEFAULT_MODE
from service.core.options import with_shapes
from service.core.settings import Settings
from service.core.target import parse_target
from service.core.vectors import EXTREMES, sample_inputs
from tests.support import arm, arm_models
from tests.support.compiled import EXAMPLES
from tests.support.compiling import Quiet, compiled
from tests.support.shared_data import ROOT

pytestmark = pytest.mark.skipif(bool(arm.MISSING), reason=arm.MISSING)

SAMPLES = 3 + len(EXTREMES)
OTHERS = [
    pytest.param(path, marks=pytest.mark.slow)
    for kind in ("tflite/*.tflite", "onnx/*.?8s8.onnx", "torch/mobilenet*.pt")
    for path in sorted((ROOT / "models").glob(kind))
]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("path", [*sorted(EXAMPLES.glob("*.tflite")), *OTHERS], ids=lambda path: path.stem)
def test_model_computes_the_same_bytes_as_on_this_host(path: Path, tmp_path: Path) -> None:
    if arm_models.missing():
        pytest.skip(arm_models.missing())
    with path.open("rb") as source:
        numerics = DEFAULT_MODE[format_of(source)]
    options = with_shapes({"": [1, 3, 224, 224]}) if path.suffix == ".pt" else {}  # such files do not say it
    model = compiled(path, numerics, tmp_path, options=options)
    inputs = sample_inputs(model.signature, SAMPLES, seed=11)
    expected = [model.run(sample) for sample in inputs]
    for target in arm.CPUS:
        request = CompileRequest(path, digest_of_file(path), parse_target(target), numerics, options)
        folder, scratch = tmp_path / target, tmp_path / f"{target}-scratch"
        scratch.mkdir()
        compile_model(request, OciLayout(folder), scratch, Quiet(), Settings())
        for answer, values in zip(arm_models.run(target, [folder], model.signature, inputs), expected, strict=True):
            for output, wanted in zip(answer, values, strict=True):
                np.testing.assert_array_equal(output, wanted)
