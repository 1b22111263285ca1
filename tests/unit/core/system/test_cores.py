"""Tests of detecting cores and CPU quotas, with folders that imitate /sys."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from service.core.system.cores import (
    affordable_threads,
    build_cores,
    by_cache,
    cores_of,
    cpu_quota,
    fast_cores,
    usable_cores,
)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("siblings", "allowed", "cores"),
    [
        ({0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}, {0, 1, 2, 3}, [{0, 1}, {2, 3}]),
        ({0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}, {0, 1, 2, 3}, [{0, 2}, {1, 3}]),
        ({0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}, {1, 2, 3}, [{1, 3}, {2}]),
        ({0: "0", 1: "1"}, {0, 1}, [{0}, {1}]),
        ({}, {3, 5}, [{3}, {5}]),
        ({3: "nonsense", 5: "5"}, {3, 5}, [{3}, {5}]),
    ],
    ids=["neighbours", "apart", "part-of-them", "one-each", "unknown", "unreadable"],
)
def test_processors_are_grouped_by_core(
    tmp_path: Path, siblings: dict[int, str], allowed: set[int], cores: list[set[int]]
) -> None:
    for cpu, text in siblings.items():
        write(tmp_path / f"cpu{cpu}/topology/thread_siblings_list", f"{text}\n")
    assert list(cores_of(allowed, tmp_path)) == cores


def test_cores_are_grouped_by_the_cache_that_they_share(tmp_path: Path) -> None:
    for cpu, text in {0: "0-1,8-9", 1: "0-1,8-9", 2: "2-3", 3: "2-3"}.items():
        write(tmp_path / f"cpu{cpu}/cache/index3/shared_cpu_list", f"{text}\n")
    cores = [frozenset({0, 8}), frozenset({2}), frozenset({1, 9}), frozenset({3})]
    assert by_cache(cores, tmp_path) == ((cores[0], cores[2]), (cores[1], cores[3]))
    assert by_cache(cores, tmp_path / "unknown") == (tuple(cores),)


@pytest.mark.parametrize(
    ("membership", "files", "quota"),
    [
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {}, None),
        ("0::/pod/box\n", {"pod/cpu.max": "200000 100000\n", "pod/box/cpu.max": "max 100000\n"}, 2.0),
        ("0::/pod/box\n", {"pod/cpu.max": "200000 100000\n", "pod/box/cpu.max": "50000 100000\n"}, 0.5),
        ("0::/docker/unseen\n", {"cpu.max": "300000 100000\n"}, 3.0),
        ("4:cpu,cpuacct:/box\n", {"cpu/box/cpu.cfs_quota_us": "400000\n", "cpu/box/cpu.cfs_period_us": "100000"}, 4.0),
        ("4:cpu:/\n1:memory:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ("4:cpuset:/\n", {"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
    ],
    ids=["v2", "v2-max", "v2-none", "above", "least", "container", "v1", "v1-none", "v1-elsewhere"],
)
def test_the_least_quota_of_all_control_groups_counts(
    tmp_path: Path, membership: str, files: dict[str, str], quota: float | None
) -> None:
    write(tmp_path / "membership", membership)
    for name, text in files.items():
        write(tmp_path / "groups" / name, text)
    assert cpu_quota(tmp_path / "groups", tmp_path / "membership") == quota


def test_without_control_groups_there_is_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path, tmp_path / "none") is None


@pytest.mark.parametrize(("quota", "threads"), [(0.3, 1), (1.9, 1), (64.0, 3), (2.0, 2), (None, 3)])
def test_a_quota_is_rounded_down_to_threads(monkeypatch: pytest.MonkeyPatch, quota: float | None, threads: int) -> None:
    cores = tuple(frozenset([cpu]) for cpu in range(3))
    monkeypatch.setattr("service.core.system.cores.usable_cores", lambda: cores)
    monkeypatch.setattr("service.core.system.cores.cpu_quota", lambda: quota)
    assert affordable_threads() == threads


def test_the_cores_of_this_process_exist() -> None:
    cpus = [cpu for core in usable_cores() for cpu in core]
    assert 1 <= len(cpus) == len(set(cpus)) <= (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("count", "there", "used"),
    [(0, 1, [0]), (0, 2, [0, 1]), (0, 3, [0, 1, 2]), (0, 4, [2, 3]), (0, 5, [3, 4]), (1, 4, [3]), (9, 2, [0, 1])],
)
def test_builds_leave_cores_to_predictions_if_there_are_enough(count: int, there: int, used: list[int]) -> None:
    cores = [frozenset([core]) for core in range(there)]
    assert build_cores(count, cores) == tuple(cores[core] for core in used)


@pytest.mark.parametrize(
    ("capacities", "fast"),
    [
        ([1024, 1024, 1024, 1024], [0, 1, 2, 3]),
        ([], [0, 1, 2, 3]),
        ([446, 446, 446, 446, 1024, 1024, 1024, 1024], [4, 5, 6, 7]),  # Rockchip RK3588.
        ([485, 485, 485, 485, 1024, 1024], [0, 1, 2, 3, 4, 5]),  # NVIDIA, Rockchip RK3399: 6 x 485 > 2 x 1024.
        ([1024, 871, 871, 871, 248, 248, 248, 248], [0, 1, 2, 3]),
        ([512, 1024], [0, 1]),
        ([511, 1024], [1]),
    ],
    ids=["alike", "unknown", "4+4", "4+2", "1+3+4", "half", "less-than-half"],
)
def test_predictions_use_the_fastest_set_of_cores(tmp_path: Path, capacities: list[int], fast: list[int]) -> None:
    for cpu, capacity in enumerate(capacities):
        write(tmp_path / f"cpu{cpu}/cpu_capacity", f"{capacity}\n")
    cores = [frozenset([cpu]) for cpu in range(len(capacities) or 4)]
    assert fast_cores(cores, tmp_path) == tuple(cores[cpu] for cpu in fast)


def test_builds_use_the_slow_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = tuple(frozenset([cpu]) for cpu in range(8))
    monkeypatch.setattr("service.core.system.cores.usable_cores", lambda: cores)
    monkeypatch.setattr("service.core.system.cores.computing_cores", lambda: cores[4:])
    assert build_cores(0) == cores[:4]
    assert affordable_threads() <= 4
