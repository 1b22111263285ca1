"""`octet explain` and `octet bench`, for a folder and for a server's model; each command runs in a new process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.compiled import EXAMPLES
from tests.support.serving import INT8, serving
from tests.support.waiting import WORK_TIMEOUT_S

CORES = sorted(os.sched_getaffinity(0))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[str]:
    with serving(data) as served:
        octet("push", EXAMPLES / INT8, "--name", "digits", "--server", served.url)
        yield served.url


@pytest.fixture(scope="module")
def folder(server: str, data: Path) -> Path:
    """The server's store: a folder with one artifact, as octet compile writes it."""
    (store,) = {path.parent for path in data.rglob("oci-layout")}
    return store


def test_explain_shows_every_layer_and_their_sum(folder: Path) -> None:
    document = octet_json("explain", folder, "--seconds", 0.1)
    layers = document["layers"]
    assert document["macs"] == sum(layer["macs"] for layer in layers) == 246_000
    assert document["seconds"] == pytest.approx(sum(layer["seconds"] for layer in layers))
    assert all(layer["kernel"] or layer["reasons"] or layer["calls"] for layer in layers)
    assert document["profile"]["threads"] == 1
    assert "calls" not in document["profile"]


def test_explain_shows_a_line_for_each_layer(folder: Path) -> None:
    shown = octet("explain", folder, "--seconds", 0).stdout
    assert "conv2d+requantize" in shown
    assert "The whole model takes" in shown


@pytest.mark.slow
def test_explain_shows_the_code_for_another_machine(tmp_path: Path) -> None:
    octet("compile", EXAMPLES / INT8, "--output", tmp_path / "board", "--target", "aarch64+dotprod")
    document = octet_json("explain", tmp_path / "board")
    assert document["profile"] is None
    assert {"conv", "depthwise", "avg_pool"} <= document["families"].keys()
    assert "not measured" in octet("explain", tmp_path / "board").stdout


def test_bench_measures_each_number_of_threads(folder: Path) -> None:
    document = octet_json("bench", folder, "--seconds", 0.1)
    latencies = document["latencies"]
    assert [latency["threads"] for latency in latencies][:1] == [1]
    assert latencies[-1]["cores"] == CORES
    for latency in latencies:
        assert latency["batch"] == 1
        assert sum(latency["histogram"]["calls"]) == latency["calls"] >= 10
        assert len(latency["cores"]) == latency["threads"]


def test_bench_shows_a_distribution(folder: Path) -> None:
    shown = octet("bench", folder, "--threads", 1, "--seconds", 0.1).stdout
    assert "█" in shown
    assert "p99" in shown


@pytest.mark.parametrize("command", ["explain", "bench"])
def test_more_threads_than_cores_are_rejected(command: str, folder: Path) -> None:
    error = octet_json(command, folder, "--threads", len(CORES) + 1, status=1)["error"]
    assert error["code"] == "invalid_input"


@pytest.mark.parametrize("command", ["explain", "bench"])
def test_a_folder_without_an_artifact_is_an_error(command: str, tmp_path: Path) -> None:
    assert octet_json(command, tmp_path, status=1)["error"]["code"] in ("not_found", "invalid_input")


def test_a_servers_model_is_measured_when_built_and_on_request(server: str, folder: Path) -> None:
    command = ("explain", "digits", "--seconds", 0, "--server", server)
    built = octet_json(*command)
    assert (built["macs"], built["profile"]["threads"]) == (246_000, 1)
    assert octet_json(*command) == built
    attached = octet_json("explain", folder, "--artifact", built["artifact"], "--seconds", 0, "--attach")
    assert octet_json(*command) == attached != built
    assert octet_json(*command, "--threads", len(CORES))["profile"]["threads"] == len(CORES)


def test_a_servers_model_is_benchmarked_on_this_machine(server: str) -> None:
    document = octet_json("bench", "digits", "--threads", 1, "--seconds", 0, "--server", server)
    assert document["artifact"].startswith("sha256:")
    assert document["latencies"][0]["calls"] >= 10


def test_a_model_that_the_server_does_not_have_is_not_found(server: str) -> None:
    assert octet_json("explain", "faces", "--server", server, status=1)["error"]["code"] == "not_found"


def octet(*arguments: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "service.cli", *map(str, arguments)]
    environment = {name: value for name, value in os.environ.items() if name != "TVM_USE_RUNTIME_LIB"}
    process = subprocess.run(
        command, capture_output=True, text=True, timeout=WORK_TIMEOUT_S, env=environment, preexec_fn=_on_all_cores
    )
    assert process.returncode == status, process.stderr + process.stdout
    return process


def octet_json(*arguments: object, status: int = 0) -> Any:
    return json.loads(octet(*arguments, "--json", status=status).stdout)


def _on_all_cores() -> None:
    """Resets the affinity: TVM pins the thread that ran its models in earlier tests, and a child would inherit it."""
    os.sched_setaffinity(0, CORES)
