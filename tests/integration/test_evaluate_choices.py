"""`octet evaluate` and `octet quantize` take a part of a file, and inputs with a fixed value. The reference runtime may
be in another Python environment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.harness.home import default_home
from service.cli.app import app
from service.compiler.importers.onnx.importer import import_model
from tests.support import mxnet_models, torchscript
from tests.support.onnx_builder import OnnxBuilder
from tests.support.tflite_bundles import archive
from tests.support.tflite_control import two_entries

pytestmark = pytest.mark.slow


def run(*arguments: object, **environment: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"], env=environment)
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return document


def write_inputs(folder: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Path:
    path = folder / "inputs.npz"
    np.savez(path, **dict[str, Any](arrays))
    return path


def bundle(folder: Path) -> Path:
    path = folder / "model.task"
    path.write_bytes(archive({"one.tflite": b"\x1c\0\0\0TFL3", "two.tflite": two_entries()}))
    return path


def test_a_signature_of_a_bundles_member_is_evaluated(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(0, 1, (4, 2, 3)).astype(np.float32)
    part = "--member", "two.tflite", "--signature", "multiply"
    data = "--data", write_inputs(tmp_path, {"c": x}), "--against", "litert"
    found = run("evaluate", bundle(tmp_path), *part, *data)
    assert (found["reference"]["values"], found["reference"]["equal"]) == (24, 24)
    run("compile", bundle(tmp_path), *part, "--output", tmp_path / "compiled")
    again = run("evaluate", tmp_path / "compiled", "--source", bundle(tmp_path), *part, *data)
    assert again["reference"]["equal"] == 24


def test_a_signature_of_a_bundles_member_is_quantized(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(0, 1, (16, 2, 3)).astype(np.float32)
    part = "--member", "two.tflite", "--signature", "multiply"
    output = tmp_path / "quantized.onnx"
    run("quantize", bundle(tmp_path), *part, "--data", write_inputs(tmp_path, {"c": x}), "--output", output)
    signature = import_model(output.read_bytes()).signature
    assert [spec.name for spec in (*signature.inputs, *signature.outputs)] == ["c", "d"]


def scaled(op_type: str, weights: str) -> bytes:
    """Returns a branch that multiplies by `weights`, a tensor of the enclosing graph."""
    branch = OnnxBuilder()
    branch.node(op_type, ["x"], [f"{op_type}_x"])
    branch.node("MatMul", [f"{op_type}_x", weights], [f"{op_type}_result"])
    branch.output(f"{op_type}_result", "float32")
    return branch.graph()


def test_an_input_with_a_fixed_value_is_evaluated_and_quantized(tmp_path: Path) -> None:
    model = OnnxBuilder()
    model.input("x", "float32", ["N", 4])
    condition = model.node("Greater", [model.input("rate", "int64", [1]), model.constant([8000], "int64")])
    weights = model.constant(np.random.default_rng(0).normal(0, 1, (4, 5)), "float32")
    then, otherwise = (scaled(op_type, weights) for op_type in ("Neg", "Abs"))
    model.node("If", [condition], ["y"], then_branch=then, else_branch=otherwise)
    model.output("y", "float32")
    file = tmp_path / "model.onnx"
    file.write_bytes(model.build())
    x = np.random.default_rng(1).normal(0, 1, (16, 1, 4)).astype(np.float32)
    data = write_inputs(tmp_path, {"x": x})
    for rate in (16000, 8000):
        found = run("evaluate", file, "--fix", f"rate={rate}", "--data", data, "--against", "onnxruntime")
        assert found["reference"]["largest_difference"] < 1e-6
    run("compile", file, "--fix", "rate=16000", "--output", tmp_path / "compiled")
    again = run("evaluate", tmp_path / "compiled", "--source", file, "--data", data, "--against", "onnxruntime")
    assert again["reference"]["largest_difference"] < 1e-6
    output = tmp_path / "quantized.onnx"
    run("quantize", file, "--fix", "rate=16000", "--data", data, "--output", output)
    signature = import_model(output.read_bytes()).signature
    assert [spec.name for spec in signature.inputs] == ["x"]
    assert run("evaluate", output, "--data", data, "--against", "onnxruntime")["reference"]["values"] == 80


@pytest.mark.parametrize(
    ("environment", "setting", "against", "file", "shape"),
    [
        ("torch", "OCTET_TORCH_PYTHON", "torch", torchscript.FOLDER / "residual_xnnpack.pt2", (1, 3, 12, 12)),
        ("mxnet", "OCTET_MXNET_PYTHON", "mxnet", mxnet_models.FOLDER / "sg_residual-symbol.json", (1, 3, 24, 24)),
    ],
)
def test_a_runtime_of_another_environment_is_compared_with(
    environment: str, setting: str, against: str, file: Path, shape: tuple[int, ...], tmp_path: Path
) -> None:
    python = default_home().python(environment)
    if not python.exists():
        pytest.skip(f"there is no environment with {environment}: run python -m benchmarks.setup_peers")
    x = np.random.default_rng(0).normal(0, 1, (3, *shape)).astype(np.float32)
    given = ("--input-shape", f"data={','.join(map(str, shape))}") if against == "mxnet" else ()
    data = write_inputs(tmp_path, {"x": x})
    found = run("evaluate", file, "--data", data, "--against", against, *given, **{setting: str(python)})
    assert found["metrics"]["equal_outputs"]["value"] == 1
    assert found["reference"]["title"].startswith("PyTorch" if against == "torch" else "MXNet 1.9.1")
