"""PyTorch's quantized models, built for GPUs and run on emulated GPUs, give PyTorch's results."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.cache import OciLayout
from service.compiler.build.pipeline import CompileRequest, compile_model
from service.compiler.importers.facts import facts_of
from service.core.builds.numerics import FBGEMM
from service.core.builds.options import with_shapes
from service.core.digest import digest_of_file
from service.core.settings import Settings
from service.core.target import parse_target
from tests.support import evidence
from tests.support.compiling import Quiet
from tests.support.cuda import networks
from tests.support.cuda.machine_code import needs_nvrtc
from tests.support.torchscript import ENGINES, FIXTURES, answers, imported

pytestmark = needs_nvrtc
MODELS = {
    "residual": "cuda-sm_80",
    "depthwise": "cuda-sm_75",
    "branches": "cuda-sm_90",
    "functions": "cuda-sm_61",
}


@pytest.mark.slow  # tests/integration/test_gpus.py runs a network on an emulated GPU
@pytest.mark.parametrize("name", MODELS)
def test_an_emulated_card_answers_what_pytorch_does(name: str, tmp_path: Path) -> None:
    path, target, scratch = next(each for each in FIXTURES if each.stem == name), MODELS[name], tmp_path / "scratch"
    inputs, expected = answers(path, ENGINES[FBGEMM])
    options = with_shapes({"": inputs[0].shape})
    scratch.mkdir()
    request = CompileRequest(path, digest_of_file(path), parse_target(target), FBGEMM, options)
    digest = compile_model(request, OciLayout(tmp_path / "store"), scratch, Quiet(), Settings())
    programs = {program.stem: program.read_text() for program in scratch.rglob("octet_*.json")}
    networks.emulate(programs, target.removeprefix("cuda-"), tmp_path / "kernels")
    outputs = networks.run_stored(tmp_path / "store", digest, target, tmp_path / "kernels", [[x] for x in inputs])
    evidence.compare_compiled(facts_of(imported(path)), target, outputs, expected)
