"""Threads on cores of their own; in processes of their own, since placing is for good."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from service.core.errors import InvalidInput
from service.runtime.placement import Placement

CORES = sorted(os.sched_getaffinity(0))

_PLACE = """
import json, os, sys
from service.runtime.machine import config_threads
from service.runtime.placement import Placement
placement = Placement(int(sys.argv[1]))
config_threads(placement.threads)
cores = placement.pin()
threads = {int(name): sorted(os.sched_getaffinity(int(name))) for name in os.listdir("/proc/self/task")}
print(json.dumps({"cores": cores, "main": threads[os.getpid()], "all": list(threads.values())}))
"""


def placed(threads: int, cores: list[int]) -> Any:
    process = subprocess.run(
        [sys.executable, "-c", _PLACE, str(threads)],
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    return json.loads(process.stdout)


@pytest.mark.parametrize("core", CORES[:1] + CORES[-1:])
def test_one_thread_stays_on_the_core_that_it_may_use(core: int) -> None:
    assert placed(1, [core])["main"] == [core]


@pytest.mark.skipif(len(CORES) < 2, reason="one core")
def test_two_threads_are_on_two_cores() -> None:
    answer = placed(2, CORES[:2])
    assert answer["cores"] == CORES[:2]
    assert answer["main"] == CORES[:1]
    assert CORES[1:2] in answer["all"]


def test_zero_is_all_cores() -> None:
    assert placed(0, CORES)["cores"] == CORES


def test_more_threads_than_cores_are_refused() -> None:
    cores = len(os.sched_getaffinity(0))  # TVM pins the thread that runs its models, which may be this one
    with pytest.raises(InvalidInput, match=f"{cores} cores"):
        Placement(cores + 1)
