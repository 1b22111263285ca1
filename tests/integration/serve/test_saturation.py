"""A server counts the values that sampled requests cause, after it has answered them, with real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.onnx_builder import OnnxBuilder
from tests.support.serving import Served, serving
from tests.support.waiting import WORK_TIMEOUT_S, eventually

SECRET = 1.0078125  # a value whose bytes must not be in any file of the server


def network() -> bytes:
    """Returns a model whose input was calibrated for values from -1.28 to 1.27."""
    b = OnnxBuilder()
    x = b.dequantized(b.quantized(b.input("x", "float32", [1, 64]), 0.01, 0, "int8"), 0.01, 0, "int8")
    weights = b.dequantized(b.constant(np.eye(64, 8, dtype=np.int8) * 64), 1 / 64, 0, "int8")
    y = b.quantized(b.node("MatMul", [x, weights]), 0.02, 0, "int8")
    b.node("DequantizeLinear", [y, *b.quantization(0.02, 0, "int8")], [b.output("y", "float32", [1, 8])])
    return b.build()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("saturation")


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    with serving(folder, saturation_share=1.0) as served:
        build = served.client.put("/api/v1/models", params={"name": "net"}, content=network()).json()
        assert served.ended(build["id"])["state"] == "succeeded"
        yield served
        assert served.stop() == 0


def predict(served: Served, values: np.ndarray[Any, Any]) -> list[float]:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 64], "data": values.reshape(-1).tolist()}
    response = served.client.post("/v2/models/net/infer", json={"inputs": [tensor]})
    assert response.status_code == 200, response.text
    found: list[float] = response.json()["outputs"][0]["data"]
    return found


def saturation(served: Served) -> dict[str, Any]:
    found: dict[str, Any] = served.client.get("/api/v1/models/net/saturation").json()
    return found


def counting_build(served: Served) -> dict[str, Any]:
    """Waits for the build that the first sample requests, and returns it."""
    found: list[dict[str, Any]] = []

    def is_requested() -> bool:
        predict(served, np.full(64, SECRET, np.float32))
        builds = served.client.get("/api/v1/builds", params={"model": "net", "counting": True}).json()["builds"]
        found[:] = [each for each in builds if each["options"].get("counts")]
        return bool(found)

    eventually(is_requested, WORK_TIMEOUT_S)
    (build,) = found
    return served.ended(build["id"])


def test_values_beyond_the_calibrated_range_name_their_tensor(served: Served, folder: Path) -> None:
    reason = "no request was sampled yet; 1 of 1 is"
    assert (saturation(served)["state"], saturation(served)["reason"]) == ("waiting", reason)
    assert counting_build(served)["state"] == "succeeded"
    within = np.full(64, SECRET, np.float32)
    before = predict(served, within)

    def is_counted(requests: int) -> bool:
        predict(served, within)
        return bool(saturation(served)["samples"] >= requests)

    eventually(lambda: is_counted(3), WORK_TIMEOUT_S)
    found = saturation(served)
    assert found["state"] == "within"
    first = found["tensors"][0]
    assert first["stored"] == pytest.approx({"low": -1.28, "high": 1.27})
    assert first["live"]["high"] == pytest.approx(1.01)
    assert first["values"] == 64 * found["samples"]
    assert sum(first["histogram"]) == first["values"]

    def is_outside() -> bool:
        predict(served, np.full(64, 5, np.float32))
        return bool(saturation(served)["state"] == "outside")

    eventually(is_outside, WORK_TIMEOUT_S)
    outside = {each["tensor"]: each for each in saturation(served)["tensors"] if each["state"] == "outside"}
    assert list(outside) == [first["tensor"]]  # the product of the clipped values fits its own range
    assert outside[first["tensor"]]["live"]["high"] == pytest.approx(5.0)
    assert outside[first["tensor"]]["above"] > 0
    metrics = served.client.get("/metrics").text
    (line,) = [
        each for each in metrics.splitlines() if each.startswith("octet_clipped_ratio{") and not each.endswith(" 0.0")
    ]
    assert f'tensor="{first["tensor"]}"' in line
    assert float(line.rpartition(" ")[2]) > 0.01
    assert predict(served, within) == before


def test_no_input_is_written_to_a_file(served: Served, folder: Path) -> None:
    counting_build(served)
    predict(served, np.full(64, SECRET, np.float32))
    pattern = np.full(8, SECRET, np.float32).tobytes()
    files = [path for path in (folder / "data").rglob("*") if path.is_file()]
    assert any(path.name == "octet.sqlite3" for path in files)
    assert not [path for path in files if pattern in path.read_bytes()]


def test_a_build_that_counts_serves_no_request(served: Served) -> None:
    assert counting_build(served)["state"] == "succeeded"
    assert [each["name"] for each in served.client.get("/v2/models/net").json()["outputs"]] == ["y"]
    rows = served.client.get("/api/v1/models/net/matrix").json()["rows"]
    assert all(row["build"] != counting_build(served)["id"] for row in rows)
    listed = served.client.get("/api/v1/builds", params={"model": "net"}).json()["builds"]
    assert [each["options"] for each in listed] == [{}]


@pytest.mark.slow
def test_a_server_without_a_share_builds_and_counts_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, saturation_share=0) as served:
        build = served.client.put("/api/v1/models", params={"name": "net"}, content=network()).json()
        assert served.ended(build["id"])["state"] == "succeeded"
        predict(served, np.zeros(64, np.float32))
        builds = served.client.get("/api/v1/builds", params={"model": "net"}).json()["builds"]
        assert [each["options"] for each in builds] == [{}]
        assert saturation(served) | {"reason": None} == {
            "name": "net",
            "version": 1,
            "share": 0,
            "state": "off",
            "reason": None,
            "limit": 0.01,
            "days": 2,
            "samples": 0,
            "dropped": 0,
            "tensors": [],
        }
        assert "octet_clipped_ratio" not in served.client.get("/metrics").text
