"""Whole models that are compiled for NVIDIA GPUs give the same bytes as on this host.

The build and the runtime are the real ones, with NVRTC in sandboxed child processes. The GPU is emulated: it runs the
kernels from the source code that NVRTC received.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.cache import OciLayout
from service.compiler.build.pipeline import CompileRequest, compile_model
from service.compiler.importers.detect import format_of
from service.core.builds.numerics import DEFAULT_MODE
from service.core.builds.options import with_shapes
from service.core.digest import digest_of_file
from service.core.settings import Settings
from service.core.target import parse_target
from service.core.verification.vectors import sample_inputs
from service.runtime.stored import StoredArtifact
from service.runtime.trust import ANYBODY
from tests.support.compiled import EXAMPLES
from tests.support.compiling import Quiet, compiled
from tests.support.cuda import networks
from tests.support.cuda.machine_code import needs_nvrtc
from tests.support.shared_data import ROOT

pytestmark = needs_nvrtc

MODELS = ROOT / "models"
KEYWORDS = Path(__file__).parents[1] / "fixtures" / "tflite" / "keywords.tflite"
_SHARED = [
    ("tflite/mobilenet_v2.int8.tflite", "sm_80"),
    ("tflite/mobilenet_v2_1.0_224_quant.tflite", "sm_61"),
    ("onnx/mobilenet_v2.u8s8.onnx", "sm_75"),
    ("onnx/resnet50.u8s8.onnx", "sm_90"),
    ("torch/resnet18.fx_x86.pt", "sm_80"),
]
# Each of the other models has about fifty kernels, all of which g++ must compile first.
SMALL = [(EXAMPLES / "digits_int8.tflite", "sm_75+sm_80+sm_90")]
OTHERS = [
    pytest.param(path, card, marks=pytest.mark.slow)
    for path, card in (
        (KEYWORDS, "sm_80"),
        (KEYWORDS, "sm_75+sm_80+sm_90"),
        *((MODELS / name, card) for name, card in _SHARED),
    )
]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("path", "capability"), [*SMALL, *OTHERS], ids=str)
def test_model_computes_the_same_bytes_on_a_card(path: Path, capability: str, tmp_path: Path) -> None:
    """Tests each GPU for which the artifact contains code, one at a time."""
    if not path.exists():
        pytest.skip(f"{path} is not there")
    with path.open("rb") as source:
        numerics = DEFAULT_MODE[format_of(source)]
    options = with_shapes({"": [1, 3, 224, 224]}) if path.suffix == ".pt" else {}  # such files do not contain the shape
    model = compiled(path, numerics, tmp_path, options=options)
    (inputs,) = sample_inputs(model.signature, 1, seed=11)
    target, layout, scratch = parse_target(f"cuda-{capability}"), OciLayout(tmp_path / "card"), tmp_path / "of-card"
    scratch.mkdir()
    request = CompileRequest(path, digest_of_file(path), target, numerics, options)
    stored = StoredArtifact.read(layout, compile_model(request, layout, scratch, Quiet(), Settings()), ANYBODY)
    sources = {program.stem: program.read_text() for program in (scratch / "build").glob("octet_*.json")}
    expected = model.run(inputs)
    for card in capability.split("+"):
        kernels = tmp_path / f"kernels-{card}"
        networks.emulate(sources, card, kernels, checked=False)
        computed = networks.run(stored.config, stored.library, stored.constants, kernels, inputs, card)
        for output, own in zip(computed, expected, strict=True):
            np.testing.assert_array_equal(output, own)
