"""`octet quantize`, from a float file and inputs to a quantized file that compiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from service.cli.app import app
from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.numerics import ONNXRUNTIME
from tests.support.float_networks import INPUT, pictures, residual_network


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "network.onnx"
    path.write_bytes(residual_network())
    return path


def answers(data: bytes, images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    module = import_model(data).module
    return np.stack([oracle.run(module, get_mode(ONNXRUNTIME), [image[None]])[0] for image in images])


def asked(*arguments: object) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, ["quantize", *map(str, arguments), "--json"])
    return result.exit_code, json.loads(result.stdout.splitlines()[-1])


def test_a_network_is_quantized_and_measured(model: Path, tmp_path: Path) -> None:
    images = pictures(40)  # two parts
    np.savez(tmp_path / "x.npz", image=images)
    right = answers(residual_network(), images).reshape(40, -1).argmax(axis=1)
    labels = tmp_path / "labels.csv"
    labels.write_text("\n".join(map(str, right)))
    status, told = asked(model, "--data", tmp_path / "x.npz", "--labels", labels, "--method", "mse")
    assert status == 0, told
    assert told["output"] == str(tmp_path / "network.int8.onnx")
    assert told["inputs"] == 40
    assert told["accuracy"]["float"]["share"] == 1
    assert told["accuracy"]["quantized"] == told["same_class"]
    assert told["float"] == [{"op_type": "Softmax", "reason": "it has no pattern", "operators": 1}]
    assert min(told["tensors_db"].values()) > 20
    # What was measured is what the file computes.
    quantized = answers((tmp_path / "network.int8.onnx").read_bytes(), images)
    same = (quantized.reshape(40, -1).argmax(axis=1) == right).sum()
    assert told["same_class"]["right"] == same
    real = answers(residual_network(), images).astype(np.float64)
    decibels = 10 * np.log10((real**2).sum() / ((real - quantized) ** 2).sum())
    assert told["outputs_db"]["scores"] == pytest.approx(decibels, abs=0.05)  # our float kernels round otherwise


def test_one_constant_image_is_enough_to_get_a_file(model: Path, tmp_path: Path) -> None:
    """A range of what one grey image shows; of tensors that it leaves at zero, the scale is 1."""
    np.savez(tmp_path / "x.npz", image=np.zeros(INPUT, np.float32))
    status, told = asked(model, "--data", tmp_path / "x.npz", "--method", "kl", "-o", tmp_path / "q.onnx")
    assert status == 0, told
    assert told["inputs"] == 1
    assert np.isfinite(answers((tmp_path / "q.onnx").read_bytes(), pictures(1))).all()


def test_a_model_that_is_quantized_already_is_refused(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", image=np.zeros(INPUT, np.float32))
    assert asked(model, "--data", tmp_path / "x.npz", "-o", tmp_path / "q.onnx")[0] == 0
    status, told = asked(tmp_path / "q.onnx", "--data", tmp_path / "x.npz")
    assert status == 1
    assert told["error"]["message"] == "this model is quantized already"


def test_a_set_that_does_not_fit_is_refused(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", image=np.zeros((1, 3, 8, 8), np.float32))
    status, told = asked(model, "--data", tmp_path / "x.npz")
    assert status == 1
    assert "the model takes [1, 3, 16, 16]" in told["error"]["message"]


def test_layers_are_left_in_float_until_a_budget_is_met(model: Path, tmp_path: Path) -> None:
    """With power-of-two scales, which cost something here."""
    np.savez(tmp_path / "x.npz", image=pictures(24))
    arguments = (model, "--data", tmp_path / "x.npz", "--method", "power-of-two", "-o", tmp_path / "q.onnx")
    _, plain = asked(*arguments, "--sensitivity")
    costs = plain["sensitivity"]
    assert list(costs["layers_db"].values()) == sorted(costs["layers_db"].values())
    assert len(costs["layers_db"]) == plain["quantized"] - 2, "all but MaxPool and Flatten"
    first, *_, last = costs["curve"]
    # All switches on is the quantized model, and all off the float one.
    assert first["output_db"] == pytest.approx(plain["outputs_db"]["scores"], abs=1e-3)
    assert first["share"] == plain["same_class"]["share"] < 1
    assert (last["share"], last["output_db"]) == (1, None)
    status, told = asked(*arguments, "--budget", "0%")
    assert status == 0, told
    kept = next(point for point in told["sensitivity"]["curve"] if point["share"] == 1)
    assert told["same_class"]["share"] == 1
    assert told["outputs_db"]["scores"] == pytest.approx(kept["output_db"], abs=1e-3)
    assert 0 < len(kept["kept"]) < len(costs["layers_db"])
    said = [each["operators"] for each in told["float"] if each["reason"] == "it was kept in float"]
    assert sum(said) == len(kept["kept"])


def test_a_budget_is_a_share(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", image=pictures(1))
    for text in ("much", "-1%", "100%"):
        status, told = asked(model, "--data", tmp_path / "x.npz", f"--budget={text}")
        assert status == 1
        assert "is no share" in told["error"]["message"]
