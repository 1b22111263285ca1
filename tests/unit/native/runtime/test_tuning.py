"""Checks that an instance determines by itself how many threads each call should use."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from service.core.digest import canonical_json
from service.core.system.cores import usable_cores
from service.runtime.octet_library import NativeModel, NativeTeam
from service.runtime.threads import team_of
from tests.support.small_artifact import address, compiled, config_of, tensor

# Calls that spend their time sleeping, so that threads can share it on any number of cores. They record how many tasks
# they were divided into.
_NAPS = """
#include <stdint.h>
typedef struct { void* sync_handle; int32_t num_task; } Group;
typedef int (*Launch)(int (*task)(int, Group*, void*), void*, int);
__attribute__((weak)) Launch __TVMBackendParallelLaunch;

static void nap(long ns) {
  struct { long s, ns; } time = {0, ns};
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(35L), "D"(&time), "S"(0L) : "rcx", "r11", "memory");
}

static int large(int task, Group* group, void* out) {
  if (task == 0) *(int32_t*)out = group->num_task;
  nap(4000000 / group->num_task);
  return 0;
}

static int small(int task, Group* group, void* out) {
  if (task == 0) *(int32_t*)out = group->num_task;
  return 0;
}

int32_t long_call(void* const* operands) { return __TVMBackendParallelLaunch(large, operands[1], 0); }
int32_t short_call(void* const* operands) { return __TVMBackendParallelLaunch(small, operands[1], 0); }
"""
# The numbers of runs after which the test looks at the result. The tuner measures again after 256, 512 and 1024 runs,
# since another process may have used the core during earlier measurements.
_LOOKS = (40, 400, 1200, 2400)


@pytest.fixture(scope="module")
def naps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if platform.machine() != "x86_64":
        pytest.skip("the calls are x86-64's")
    return compiled(_NAPS, folder=tmp_path_factory.mktemp("naps"))


def _settle(naps: Path, empty: Path, calls: list[str], team: NativeTeam) -> Iterator[list[int]]:
    """Yields how many tasks each of `calls` has at each look."""
    buffers = [("input", 0), *(("output", index) for index in range(len(calls)))]
    config = config_of(buffers, [(call, [0, 1 + at]) for at, call in enumerate(calls)], outputs=len(calls))
    instance = NativeModel.load_files(canonical_json(config), naps, empty).instance(team, 2)
    given, got = tensor(1), [tensor() for _ in calls]
    instance.bind([address(given)], [address(each) for each in got])
    for runs in np.diff(_LOOKS, prepend=0):
        for _ in range(runs):
            instance.run()
        yield [int(each[0, 0]) for each in got]


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    (tmp_path / "empty").touch()
    return tmp_path / "empty"


@pytest.fixture
def team() -> NativeTeam:
    cores = usable_cores()
    if len(cores) < 2:
        pytest.skip("one core")
    return team_of(cores, budget=2)


def test_a_short_call_stays_on_one_thread_beside_a_long_one(naps: Path, empty: Path, team: NativeTeam) -> None:
    looks = _settle(naps, empty, ["short_call", "long_call"], team)
    assert any(short == 1 and long > 1 for short, long in looks)


def test_a_run_of_short_calls_leaves_the_other_cores_alone(naps: Path, empty: Path, team: NativeTeam) -> None:
    assert any(tasks == [1, 1, 1] for tasks in _settle(naps, empty, ["short_call"] * 3, team))
