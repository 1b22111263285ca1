"""Commands on artifacts for emulated GPUs: their results, and their errors if something is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.compiler.sandbox import check
from tests.support import gpu_artifact
from tests.support.small_artifact import tensor
from tests.support.waiting import WORK_TIMEOUT_S
from tools.cuda_emulator import emulated_driver


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the GPU driver of an emulated machine, and the results of its kernels."""
    folder = emulated_driver.build_driver(tmp_path_factory.mktemp("machine"))
    (folder / "settings").write_text("OCTET_EMULATED_CARDS=8.6\n")
    return folder


@pytest.fixture(scope="module")
def artifact(machine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artifact")
    gpu_artifact.write_artifact(folder / "model.octet", emulated_driver.build_library(folder / "library", machine))
    np.save(folder / "input.npy", tensor(np.arange(16)))
    return folder / "model.octet"


def octet(driver: Path, *arguments: object, status: int = 0, **settings: str) -> Any:
    """Runs a command with the driver in that folder, and returns its output."""
    command = [sys.executable, "-m", "service.cli", *map(str, arguments), "--json"]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(driver), **settings}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WORK_TIMEOUT_S)
    assert run.returncode == status, run.stderr + run.stdout
    return json.loads(run.stdout)


sandboxed = pytest.mark.skipif(
    not all(finding.available for finding in check()), reason="this kernel cannot sandbox anything"
)


@sandboxed
def test_run_computes_on_the_gpu(machine: Path, artifact: Path) -> None:
    answer = octet(machine, "run", artifact, artifact.with_name("input.npy"), "--raw")
    assert answer["outputs"][0]["data"] == gpu_artifact.simple(np.arange(16)).tolist()


@sandboxed
def test_verify_compares_the_outputs_of_the_gpu(machine: Path, artifact: Path, tmp_path: Path) -> None:
    assert octet(machine, "verify", artifact)["verified"] is True
    other = tmp_path / "other.octet"
    library = emulated_driver.build_library(tmp_path / "library", machine)
    gpu_artifact.write_artifact(other, library, answer=lambda given: gpu_artifact.simple(given) + 1)
    assert octet(machine, "verify", other, status=1)["verified"] is False


@sandboxed
@pytest.mark.parametrize("chosen", ["", "1", "MIG-1a2b3c4d"])
def test_a_sandboxed_child_sees_only_the_allowed_gpu(chosen: str, machine: Path, artifact: Path) -> None:
    given = artifact.with_name("input.npy")
    error = octet(machine, "run", artifact, given, status=1, CUDA_VISIBLE_DEVICES=chosen)["error"]
    assert "NVIDIA's driver shows no GPU to this process" in error["message"]


@sandboxed
def test_bench_reports_the_gpu_and_one_thread(machine: Path, artifact: Path) -> None:
    measured = octet(machine, "bench", artifact, "--seconds", "0")
    assert measured["machine"] == "Emulated 8.6"
    assert [row["threads"] for row in measured["latencies"]] == [1]


@sandboxed
def test_explain_times_the_kernels_on_the_gpu(machine: Path, artifact: Path) -> None:
    explained = octet(machine, "explain", artifact, "--seconds", "0")
    assert explained["profile"]["machine"] == "Emulated 8.6"


@sandboxed
def test_without_a_driver_the_command_reports_it(artifact: Path, tmp_path: Path) -> None:
    error = octet(tmp_path, "run", artifact, artifact.with_name("input.npy"), status=1)["error"]
    assert error["code"] == "unsupported"
    assert "NVIDIA's driver is not installed" in error["message"]


def test_targets_and_doctor_report_what_the_gpu_runs(machine: Path, tmp_path: Path) -> None:
    listed = {each["target"]: each["run"]["missing"] for each in octet(machine, "targets")["targets"]}
    missing = {name: lacks for name, lacks in listed.items() if name.startswith("cuda-")}
    runs = [name for name, lacks in missing.items() if not {each for each in lacks if each.startswith("sm_")}]
    assert runs == ["cuda-sm_86", "cuda-sm_80", "cuda-sm_80+sm_90", "cuda-sm_75+sm_80+sm_90"]
    checks = octet(machine, "doctor", "--data-dir", tmp_path, "--server", "127.0.0.1:1")
    found = {check["name"]: check["detail"] for check in checks}
    targets = "cuda-sm_75+sm_80+sm_90, cuda-sm_80, cuda-sm_80+sm_90, cuda-sm_86"
    assert found["GPU"] == f"Emulated 8.6, 25.8 GB, compute capability 8.6 → {targets}"
    assert found["GPU driver"] == "CUDA 12.9"


def test_doctor_reports_why_a_gpu_cannot_be_used(tmp_path: Path) -> None:
    driver = emulated_driver.build_driver(tmp_path / "driver")
    (driver / "settings").write_text("OCTET_EMULATED_VERSION=11040\n")
    checks = octet(driver, "doctor", "--data-dir", tmp_path, "--server", "127.0.0.1:1")
    gpu = next(check for check in checks if check["name"] == "GPU")
    assert gpu["state"] == "warning"
    assert "NVIDIA's driver supports CUDA 11.4" in gpu["detail"]
