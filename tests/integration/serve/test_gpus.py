"""A server on a machine with an emulated GPU that fails. It becomes not ready, restarts, and answers again."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.support import gpu_artifact
from tests.support.serving import Served, serving
from tests.support.waiting import WORK_TIMEOUT_S, eventually
from tools.cuda_emulator import emulated_driver


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model for a GPU. The driver of the GPU fails when a process launches its 40th kernel."""
    driver = emulated_driver.build_driver(tmp_path / "driver")
    (driver / "settings").write_text("OCTET_EMULATED_FAULT=launch:40:719\n")
    folder = tmp_path / "models" / "m.octet"
    gpu_artifact.write_artifact(folder, emulated_driver.build_library(tmp_path / "library", driver))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    return folder.parent


def predict(served: Served) -> int:
    tensor = {"name": "in0", "datatype": "INT32", "shape": [1, 16], "data": list(range(16))}
    try:
        response = served.client.post("/v2/models/m/infer", json={"inputs": [tensor]})
    except httpx.TransportError:
        return 0
    if response.status_code == httpx.codes.OK:
        assert response.json()["outputs"][0]["data"] == gpu_artifact.simple(np.arange(16)).tolist()
    return response.status_code


def is_ready(served: Served) -> bool:
    try:
        return predict(served) == httpx.codes.OK
    except httpx.TransportError:
        return False


def test_a_failed_gpu_is_used_again_by_the_next_process(models: Path, tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log, serving(tmp_path, log, model_files=json.dumps([str(models)])) as served:
        eventually(lambda: is_ready(served), WORK_TIMEOUT_S)
        metrics = served.client.get("/metrics").text
        assert 'octet_card_memory_bytes{card="0",name="Emulated 8.6"}' in metrics
        assert 'octet_card_used_bytes{card="0",name="Emulated 8.6"}' in metrics
        statuses = [predict(served) for _ in range(60)]
        assert statuses.count(200) >= 15
        assert set(statuses) <= {0, 200, 500, 503}
        assert set(statuses) != {200}
        eventually(lambda: is_ready(served), WORK_TIMEOUT_S)
    log_text = (tmp_path / "log").read_text()
    assert "a GPU failed" in log_text
    assert "crashed" in log_text
    assert "before it is put in quarantine" in log_text
