"""torchvision's networks with random weights, quantized by PyTorch and compiled. Every output equals PyTorch's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.home import CHECKOUT, default_home
from service.compiler.importers.facts import facts_of
from service.compiler.importers.torch import import_torchscript
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import FBGEMM, TORCH_X86
from service.core.builds.options import with_shapes
from service.core.models.arrays import Array
from service.core.target import parse_target
from tests.support import evidence
from tests.support.compiling import compiled
from tests.support.torchscript import ENGINES

SIZES = {"resnet18": 224, "resnet50": 224, "mobilenet_v2": 224, "googlenet": 224, "inception_v3": 299}
SAMPLES = 6


def answered(engine: str, model: Path, inputs: list[Array], folder: Path) -> list[Array]:
    python = default_home().python("torch")
    np.savez(folder / "inputs.npz", *inputs)
    files = [str(model), str(folder / "inputs.npz"), str(folder / "outputs.npz")]
    command = [str(python), "-m", "tests.support.torch_answers", engine, *files]
    subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, env={})
    with np.load(folder / "outputs.npz") as outputs:
        return [outputs[f"arr_{index}"] for index in range(len(inputs))]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", [FBGEMM, TORCH_X86])
@pytest.mark.parametrize("network", SIZES)
def test_compiled_network_equals_torch(network: str, mode: str, tmp_path: Path) -> None:
    home = default_home()
    path = home.models / "torch" / f"{network}.fx_x86.pt"
    if not path.exists() or not home.python("torch").exists():
        pytest.skip(f"{path} or PyTorch is missing: run python -m benchmarks.setup_peers")
    shape = (1, 3, SIZES[network], SIZES[network])
    rng = np.random.default_rng(7)
    inputs = [rng.normal(0, 1.2, shape).astype(np.float32) for _ in range(SAMPLES)]
    expected = answered(ENGINES[mode], path, inputs, tmp_path)
    model = compiled(path, mode, tmp_path, options=with_shapes({"": shape}))
    actual = [model.run([x])[0] for x in inputs]
    facts = facts_of(import_torchscript(path.read_bytes(), shapes={"": shape}))
    evidence.note_accuracy(network, facts.format, mode, np.concatenate(expected), np.concatenate(actual), None)
    evidence.compare_compiled(facts, parse_target("host").name, [actual], [expected])


QUANTIZABLE = (
    *("googlenet", "inception_v3", "mobilenet_v2", "mobilenet_v3_large", "resnet18", "resnet50"),
    *("resnext101_32x8d", "shufflenet_v2_x0_5", "shufflenet_v2_x1_0", "shufflenet_v2_x1_5", "shufflenet_v2_x2_0"),
)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("network", QUANTIZABLE)
def test_imported_network_equals_every_engine(network: str, tmp_path: Path) -> None:
    """The networks were quantized in eager mode. The oracle runs several blocks of layers on one small image."""
    python, path = default_home().python("torch"), tmp_path / "model.pt"
    if not python.exists():
        pytest.skip("PyTorch is missing: run python -m benchmarks.setup_peers")
    command = [str(python), "-m", "tests.support.torch_networks", network, str(path), str(tmp_path / "answers.npz")]
    subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, env={})
    with np.load(tmp_path / "answers.npz") as answers:
        x = answers["input"]
        model = import_torchscript(path.read_bytes(), shapes={"": x.shape})
        for mode, engine in ENGINES.items():
            actual = oracle.run_all(model.module, get_mode(mode), [[x]])
            evidence.compare(model, mode, actual, [[answers[engine]]])
