"""The data plane on emulated GPUs: it computes, is sandboxed, and ends when a GPU fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.support import gpu_artifact
from tests.support.plane_process import plane
from tests.support.waiting import GIVE_UP_S
from tools.cuda_emulator import emulated_driver


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the GPU driver of an emulated machine, and the results of its kernels."""
    return emulated_driver.build_driver(tmp_path_factory.mktemp("machine"))


@pytest.fixture(scope="module")
def library(machine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return emulated_driver.build_library(tmp_path_factory.mktemp("library"), machine)


@pytest.fixture(scope="module")
def model(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artifact") / "model.octet"
    gpu_artifact.write_artifact(folder, library)
    return folder


def predict(url: str, values: Any, **members: Any) -> httpx.Response:
    data = np.asarray(values, np.int32).tolist()
    tensor = {"name": "in0", "datatype": "INT32", "shape": [1, 16], "data": data}
    return httpx.post(f"{url}/v2/models/m/infer", json={"inputs": [tensor], **members}, timeout=GIVE_UP_S)


@contextmanager
def ending(model: Path, *options: str, **settings: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Yields the address and the process of a data plane that ends by itself."""
    command = [sys.executable, "-m", "service.cli", "worker", "serve", f"m={model}", "--port=0", "--no-grpc", "--json"]
    environment = os.environ | settings
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        yield (json.loads(line)["url"] if line else ""), process
    finally:
        process.kill()
        process.communicate()


def test_it_responds_with_the_result_of_the_gpu(model: Path, machine: Path) -> None:
    with plane([f"m={model}"], LD_LIBRARY_PATH=str(machine)) as served:
        for start in range(3):
            values = np.arange(start, start + 16)
            outputs = predict(served.url, values).raise_for_status().json()["outputs"]
            assert outputs[0]["data"] == gpu_artifact.simple(values).tolist()
        threads = Path(f"/proc/{served.pid}/task").iterdir()
        names = [(thread / "comm").read_text().strip() for thread in threads]
        assert sum(name.startswith("m-1") for name in names) == 2  # one thread for each instance


def test_the_states_of_a_sequence_pass_through_the_gpu(library: Path, machine: Path, tmp_path: Path) -> None:
    gpu_artifact.write_artifact(tmp_path / "counting", library, gpu_artifact.COUNTING, answer=lambda given: given)
    with plane([f"m={tmp_path / 'counting'}"], LD_LIBRARY_PATH=str(machine)) as served:
        seen = []
        for step in range(3):
            parameters = {"sequence_id": 7, "sequence_start": step == 0, "sequence_end": step == 2}
            answer = predict(served.url, np.ones(16), parameters=parameters).raise_for_status().json()
            seen.append(answer["outputs"][0]["data"][3])
        assert seen == [1, 2, 3]


def test_one_of_several_targets_is_chosen(model: Path, library: Path, machine: Path, tmp_path: Path) -> None:
    other = gpu_artifact.on_gpu(gpu_artifact.SIMPLE | {"requires": ["sm_75"]}, None, 75)
    other["plan"] = gpu_artifact.SIMPLE["plan"]
    gpu_artifact.write_artifact(tmp_path / "both", library)
    gpu_artifact.write_artifact(tmp_path / "both", library, other)
    command = [sys.executable, "-m", "service.cli", "worker", "serve", f"m={tmp_path / 'both'}", "--port=0", "--json"]
    environment = os.environ | {"LD_LIBRARY_PATH": str(machine)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=GIVE_UP_S)
    assert "contains artifacts for cuda-sm_75 and cuda-sm_80" in json.loads(run.stdout)["error"]["message"]
    run = subprocess.run([*command, "--target=cuda-sm_90"], env=environment, capture_output=True, text=True)
    assert "contains no artifact for cuda-sm_90" in json.loads(run.stdout)["error"]["message"]
    with ending(tmp_path / "both", "--target=cuda-sm_80", LD_LIBRARY_PATH=str(machine)) as (url, _):
        assert predict(url, np.zeros(16)).status_code == 200


def test_a_gpu_failure_ends_it(model: Path, machine: Path) -> None:
    with ending(model, LD_LIBRARY_PATH=str(machine), OCTET_EMULATED_FAULT="launch:9:700") as (url, process):
        statuses: list[int] = []
        while process.poll() is None and len(statuses) < 100:
            try:
                statuses.append(predict(url, np.ones(16)).status_code)
            except httpx.TransportError:
                time.sleep(0.01)
        assert process.wait(GIVE_UP_S) == 3
        assert 200 in statuses
        assert set(statuses) <= {200, 500, 503}
        assert process.stderr is not None
        assert "a GPU failed" in process.stderr.read()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"OCTET_EMULATED_CARDS": "8.6:1000"},
            "there is not enough memory for the model: an instance requires 1 MB, but GPU 0",
        ),
        ({"OCTET_EMULATED_CARDS": "7.5"}, "which no GPU here supports"),
        ({"OCTET_EMULATED_VERSION": "11080"}, "NVIDIA's driver supports CUDA 11.8"),
    ],
)
def test_it_does_not_start_without_a_usable_gpu(
    settings: dict[str, str], words: str, model: Path, machine: Path
) -> None:
    with ending(model, LD_LIBRARY_PATH=str(machine), **settings) as (_, process):
        assert process.wait(GIVE_UP_S) == 1
        assert process.stderr is not None
        assert words in process.stderr.read()
