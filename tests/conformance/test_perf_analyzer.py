"""Triton's unmodified `perf_analyzer` measures `octet serve` over both protocols, and checks its results."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.support.compiled import PICTURES, expected
from tests.support.serving import UINT8, Served, serving
from tests.support.waiting import WORK_TIMEOUT_S, eventually

_KEPT = Path.home() / ".cache" / "octet-perf" / "bin" / "perf_analyzer"
PROGRAM = os.environ.get("OCTET_PERF_ANALYZER") or shutil.which("perf_analyzer") or str(_KEPT)
# Three windows of a quarter of a second each. Their results do not matter, because this test does not compare speed.
_BRIEFLY = ("--measurement-interval", "250", "--stability-percentage", "9999", "--max-trials", "3")
_STAGES = {
    "Server Queue": "queue",
    "Server Compute Input": "compute_input",
    "Server Compute Infer": "compute_infer",
    "Server Compute Output": "compute_output",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which(PROGRAM) is None,
        reason=f"NOT TESTED, since there is no perf_analyzer at {PROGRAM}: docs/how-to/http.md says how to install it",
    ),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serves a model. It has one variant for single samples and one for batches of 8."""
    with serving(tmp_path_factory.mktemp("perf")) as served:
        served.ended(served.push(UINT8)["id"])
        served.ended(served.push(UINT8, batch="8")["id"])
        eventually(lambda: served.client.get("/v2/models/digits/config").json()["max_batch_size"] == 8)
        yield served


def analyzed(served: Served, protocol: str, folder: Path, *options: str) -> list[dict[str, str]]:
    """Runs `perf_analyzer` and returns its report, which has one row for each load."""
    assert served.grpc is not None
    address = served.grpc if protocol == "grpc" else served.url.removeprefix("http://")
    report = folder / "report.csv"
    command = [PROGRAM, "-m", "digits", "-u", address, "-i", protocol, "-f", str(report), *_BRIEFLY, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WORK_TIMEOUT_S, check=False, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    with report.open(newline="") as file:
        return list(csv.DictReader(file))


def statistics(served: Served) -> dict[str, Any]:
    """Checks that all requests have succeeded. Returns how often each step of a request ran, and its total duration."""
    (model,) = served.client.get("/v2/models/digits/stats").json()["model_stats"]
    found: dict[str, Any] = model["inference_stats"]
    assert found["fail"]["count"] == 0
    return found


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize(
    ("options", "loads"),
    [
        (("--concurrency-range", "1:4"), 4),
        (("--concurrency-range", "4", "--async"), 1),
        (("--request-rate-range", "100:200:100", "--request-distribution", "poisson"), 2),
        (("-b", "8", "--concurrency-range", "2"), 1),
        (("--measurement-mode", "count_windows", "--measurement-request-count", "50", "-x", "1"), 1),
    ],
    ids=["concurrency", "asynchronous", "request_rate", "batch", "count"],
)
def test_perf_analyzer_measures_the_server(
    served: Served, protocol: str, options: tuple[str, ...], loads: int, tmp_path: Path
) -> None:
    before = statistics(served)
    rows = analyzed(served, protocol, tmp_path, *options)
    assert len(rows) == loads
    for row in rows:
        assert float(row["Inferences/Second"]) > 0
        assert float(row["Server Compute Infer"]) > 0  # The value comes from the server's statistics.
        # The values are whole microseconds. Other stages may take less than a microsecond, because binary data are
        # received in place.
        assert all(float(row[stage]) >= 0 for stage in _STAGES), row
    after = statistics(served)
    assert all(after[stage]["ns"] > before[stage]["ns"] for stage in ("success", *_STAGES.values()))


@pytest.mark.parametrize(
    ("protocol", "options"),
    [
        ("http", ("--input-tensor-format", "json", "--output-tensor-format", "json")),
        ("http", ("--input-tensor-format", "binary", "--output-tensor-format", "json")),
        ("grpc", ("--streaming",)),
        ("grpc", ("--grpc-compression-algorithm", "gzip")),
        ("grpc", ("--grpc-compression-algorithm", "deflate")),
    ],
    ids=["json", "binary_to_json", "streaming", "gzip", "deflate"],
)
def test_perf_analyzer_sends_each_form_of_a_request(
    served: Served, protocol: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    (row,) = analyzed(served, protocol, tmp_path, *options)
    assert float(row["Inferences/Second"]) > 0


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("are_right", [True, False])
def test_perf_analyzer_accepts_only_the_expected_outputs(
    served: Served, protocol: str, are_right: bool, tmp_path: Path
) -> None:
    answers = expected(UINT8) if are_right else 255 - expected(UINT8)
    pictures = [np.asarray(Image.open(picture).convert("L")).reshape(-1).tolist() for picture in PICTURES]
    (tensor,) = served.client.get("/v2/models/digits").json()["inputs"]
    data = {
        "data": [{tensor["name"]: {"content": pixels, "shape": [16, 16, 1]}} for pixels in pictures],
        "validation_data": [{"probabilities": {"content": answer.tolist(), "shape": [10]}} for answer in answers],
    }
    path = tmp_path / "data.json"
    path.write_text(json.dumps(data))
    if are_right:
        assert analyzed(served, protocol, tmp_path, "--input-data", str(path))
    else:
        with pytest.raises(AssertionError, match="Output doesn't match expected output"):
            analyzed(served, protocol, tmp_path, "--input-data", str(path))
