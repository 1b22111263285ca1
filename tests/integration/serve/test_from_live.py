"""A model is quantized again with the ranges that live requests need, with real processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import octet
from service.cli.app import app
from tests.support.float_networks import residual_network
from tests.support.serving import Served, serving
from tests.support.waiting import WORK_TIMEOUT_S, eventually

pytestmark = pytest.mark.slow

_SHAPE = (1, 3, 16, 16)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, saturation_share=1.0) as served:
        yield served
        assert served.stop() == 0


def quantize(served: Served, folder: Path, *arguments: str) -> Result:
    """Quantizes the float model in `folder` and pushes the result."""
    command = ["quantize", str(folder / "net.onnx"), "--data", str(folder / "calibration.npz"), *arguments]
    return CliRunner().invoke(app, [*command, "--push", "net", "--server", served.url, "--json"])


def predict(served: Served, version: int, values: np.ndarray[Any, Any]) -> None:
    tensor = {"name": "image", "datatype": "FP32", "shape": list(_SHAPE), "data": values.reshape(-1).tolist()}
    response = served.client.post(f"/v2/models/net/versions/{version}/infer", json={"inputs": [tensor]})
    assert response.status_code == 200, response.text


def counted(served: Served, version: int, values: np.ndarray[Any, Any], least: int = 1) -> dict[str, Any]:
    """Sends the same request to version 1 until the values of `version` have been counted, and returns the counts."""
    found: dict[str, Any] = {}

    def is_counted() -> bool:
        predict(served, 1, values)
        found.update(served.client.get("/api/v1/models/net/saturation", params={"version": version}).json())
        return bool(found["samples"] >= least)

    eventually(is_counted, WORK_TIMEOUT_S)
    return found


def test_a_model_that_clips_is_quantized_with_wider_ranges(served: Served, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    calibration = random.uniform(-1, 1, (8, *_SHAPE)).astype(np.float32)
    (tmp_path / "net.onnx").write_bytes(residual_network())
    np.savez(tmp_path / "calibration.npz", image=calibration)
    first = quantize(served, tmp_path)
    assert first.exit_code == 0, first.output
    early = quantize(served, tmp_path, "--from-live", "net")
    assert early.exit_code == 1
    assert "no live values of net version 1 were counted" in early.output

    live = random.uniform(-3, 3, _SHAPE).astype(np.float32)
    before = counted(served, 1, live)
    assert before["state"] == "outside"
    image = before["tensors"][0]
    assert image["stored"] == pytest.approx({"low": -1, "high": 1}, abs=0.02)
    assert image["proposed"] == pytest.approx({"low": -3, "high": 3}, abs=0.1)

    second = quantize(served, tmp_path, "--from-live", "net")
    assert second.exit_code == 0, second.output
    report = json.loads(second.stdout)
    assert [each["tensor"] for each in report["live"]] == [
        each["tensor"] for each in before["tensors"] if each["proposed"] is not None
    ]
    predict(served, 2, live)  # loads version 2, which then counts the requests that version 1 answers
    after = {each["tensor"]: each for each in counted(served, 2, live, least=2)["tensors"]}
    assert after[image["tensor"]]["state"] == "within"
    assert after[image["tensor"]]["stored"] == pytest.approx({"low": -3, "high": 3}, abs=0.1)
    assert after[image["tensor"]]["clipped"] < 0.001


def test_python_quantizes_with_live_ranges(served: Served, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    calibration = random.uniform(-1, 1, (8, *_SHAPE)).astype(np.float32)
    (tmp_path / "net.onnx").write_bytes(residual_network())
    with octet.Client(served.url) as client:
        client.push(octet.quantize(tmp_path / "net.onnx", data=list(calibration)), "net")
        with pytest.raises(octet.errors.InvalidInput, match="no live values of net version 1 were counted"):
            client.live_ranges("net")
        before = counted(served, 1, random.uniform(-3, 3, _SHAPE).astype(np.float32))
        live = client.live_ranges("net")
        tensor = before["tensors"][0]["tensor"]
        assert live[tensor] == pytest.approx((-3, 3), abs=0.1)
        wider = octet.quantize(tmp_path / "net.onnx", data=list(calibration), live=live)
        assert [each["tensor"] for each in wider.report["live"]] == [*live]
