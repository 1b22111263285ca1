"""Tests of detecting GPUs in a child process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from service.core.system import gpus
from service.core.system.gpus import Gpu, Gpus, detect_gpus
from service.core.target import detect_host, gpu_features
from tools.cuda_emulator import emulated_driver


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return emulated_driver.build_driver(tmp_path_factory.mktemp("driver"))


def _detected() -> Any:
    """Returns the detected GPUs, and whether this process has loaded the driver, after which it must not fork."""
    found = detect_gpus()
    is_loaded = any("libcuda" in line for line in Path("/proc/self/maps").read_text().splitlines())
    listed = [[gpu.name, gpu.capability] for gpu in found.cards]
    features = sorted(each for each in detect_host().features if each.startswith("sm_"))
    return listed, found.cuda, found.problem, features, is_loaded


def _detect_in_child(driver: Path, **settings: str) -> Any:
    environment = emulated_driver.environment(driver, driver, **settings)
    return emulated_driver.in_a_child(_detected, environment=environment)


def test_the_gpus_of_a_machine_are_detected(driver: Path) -> None:
    listed, cuda, problem, features, is_loaded = _detect_in_child(driver, cards="8.9;7.5", version="12040")
    assert (listed, cuda, problem) == ([["Emulated 8.9", 89], ["Emulated 7.5", 75]], "12.4", "")
    assert set(features) >= {"sm_75", "sm_80", "sm_86", "sm_89"}
    assert not {"sm_61", "sm_90"} & set(features)
    assert not is_loaded


def test_a_driver_without_gpus_is_reported(driver: Path) -> None:
    listed, cuda, problem, features, _ = _detect_in_child(driver, CUDA_VISIBLE_DEVICES="")
    assert (listed, cuda, features) == ([], "", [])
    assert problem == "NVIDIA's driver shows no GPU to this process"


def test_a_partition_counts_as_a_gpu(driver: Path) -> None:
    partitions = "9.0:10000000000:232448:MIG-1a2b3c4d;8.0:20000000000:166912:MIG-5e6f7a8b"
    listed, _, _, features, _ = _detect_in_child(driver, cards=partitions, CUDA_VISIBLE_DEVICES="MIG-5e6f7a8b")
    assert (listed, features) == ([["Emulated 8.0", 80]], ["sm_80"])


def test_an_invalid_driver_is_reported(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_bytes(b"no library")
    listed, _, problem, _, _ = _detect_in_child(tmp_path)
    assert listed == []
    assert "NVIDIA's driver is not installed" in problem


def test_without_driver_and_device_no_child_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_DEVICES", ())
    monkeypatch.setattr(gpus, "_FOLDERS", ())
    monkeypatch.setenv("LD_LIBRARY_PATH", os.devnull)
    monkeypatch.setattr("subprocess.run", None)
    detect_gpus.cache_clear()
    try:
        assert detect_gpus() == Gpus()
    finally:
        detect_gpus.cache_clear()


@pytest.mark.parametrize(
    ("capability", "runs"),
    [
        (61, {"sm_61"}),
        (70, set()),
        (75, {"sm_75"}),
        (87, {"sm_80", "sm_86"}),
        (90, {"sm_90"}),
        (100, set()),
        (120, set()),
    ],
)
def test_code_runs_on_gpus_of_its_major_capability(capability: int, runs: set[str]) -> None:
    assert gpu_features([Gpu("", capability, 0)]) == runs
