"""Children that use up resources."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from service.compiler.sandbox import check
from service.core.errors import (
    BuildFailed,
    BuildTimedOut,
    OutOfMemory,
)
from tests.support.sandbox import attempt, limited
from tests.support.waiting import GIVE_UP_S

pytestmark = pytest.mark.skipif(
    not all(finding.available for finding in check()), reason="this kernel cannot sandbox anything"
)


def test_a_fork_bomb_forks_nothing(scratch: Path) -> None:
    assert attempt(scratch, "fork_bomb") == {"forked": 0}


def test_a_thread_bomb_is_killed(scratch: Path) -> None:
    with pytest.raises(BuildFailed, match=r"started \d+ threads; 16 are allowed"):
        attempt(scratch, "start_threads", limits=limited(threads=16))


@pytest.mark.parametrize("role", ["write_one_file", "write_one_file_natively"])
def test_a_file_cannot_exceed_its_limit(scratch: Path, role: str) -> None:
    with pytest.raises(BuildFailed, match="wrote more than 8388608 bytes"):
        attempt(scratch, role, limits=limited(file_bytes=8 << 20))
    assert (scratch / "large").stat().st_size == 8 << 20


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_the_sizes_of_many_files_add_up(scratch: Path, size: int) -> None:
    with pytest.raises(BuildFailed, match="wrote more than 8388608 bytes"):
        attempt(scratch, "write_many_files", {"size": size, "count": 1 << 30}, limits=limited(file_bytes=8 << 20))


def test_a_child_faster_than_the_watchdog_is_detected(scratch: Path) -> None:
    with pytest.raises(BuildFailed, match="wrote more than 65536 bytes"):
        attempt(scratch, "write_many_files", {"size": 1, "count": 17}, limits=limited(file_bytes=64 << 10))


def test_deleted_files_count_too(scratch: Path) -> None:
    with pytest.raises(BuildFailed, match="wrote more than 8388608 bytes"):
        attempt(scratch, "write_deleted_files", {"size": 1 << 20}, limits=limited(file_bytes=8 << 20))


def test_earlier_files_do_not_count(scratch: Path) -> None:
    (scratch / "before").write_bytes(bytes(1 << 20))
    attempt(scratch, "echo", limits=limited(file_bytes=64 << 10))


def test_nested_directories_are_limited(scratch: Path) -> None:
    with pytest.raises(BuildFailed, match="created directories that are nested too deep"):
        attempt(scratch, "nest_directories")


@pytest.mark.parametrize("role", ["use_memory", "use_memory_natively"])
def test_memory_is_limited(scratch: Path, role: str) -> None:
    with pytest.raises(OutOfMemory, match=f"the {role} process needed more than 536870912 bytes of memory"):
        attempt(scratch, role)


def test_descriptors_are_limited(scratch: Path) -> None:
    result = attempt(scratch, "open_files", limits=limited(open_files=64))
    assert result["stopped"] == "EMFILE"
    assert result["opened"] < 64


@pytest.mark.parametrize("role", ["hang", "stop"])
def test_a_child_that_hangs_is_killed(scratch: Path, role: str) -> None:
    started_s = time.monotonic()
    with pytest.raises(BuildTimedOut, match=f"the {role} process took longer than 1 s of wall-clock time"):
        attempt(scratch, role, limits=limited(wall_s=1))
    assert time.monotonic() - started_s < GIVE_UP_S  # the child would sleep longer


@pytest.mark.parametrize("role", ["hang", "stop"])
def test_a_stalled_child_is_killed_long_before_its_time_limit(scratch: Path, role: str) -> None:
    with pytest.raises(BuildTimedOut, match=f"the {role} process has done nothing for 1 s"):
        attempt(scratch, role, limits=limited(wall_s=3600, stall_s=1))


def test_a_child_that_computes_or_waits_for_a_processor_is_not_stalled(scratch: Path) -> None:
    """The child shares a processor with three other processes. It waits most of the time, so it reaches the limit on
    elapsed time first.
    """
    last = max(os.sched_getaffinity(0))
    busy = [subprocess.Popen(["taskset", "-c", str(last), sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        limits = limited(wall_s=2, stall_s=0.5, nice=19, processors=(last,))
        with pytest.raises(BuildTimedOut, match="took longer than 2 s of wall-clock time"):
            attempt(scratch, "spin", {"ignore": False}, limits=limits)
    finally:
        for process in busy:
            process.kill()
            process.wait()


@pytest.mark.parametrize("ignore", [False, True])
def test_a_busy_loop_exceeds_its_processor_time(scratch: Path, ignore: bool) -> None:
    with pytest.raises(BuildTimedOut, match="used up its 1 s of processor time"):
        attempt(scratch, "spin", {"ignore": ignore}, limits=limited(cpu_s=1))


def test_a_child_lowers_its_priority_and_stays_on_its_processors(scratch: Path) -> None:
    last = max(os.sched_getaffinity(0))
    found = attempt(scratch, "scheduling", limits=limited(nice=7, processors=(last,)))
    assert found == {
        "nice": max(7, os.getpriority(os.PRIO_PROCESS, 0)),
        "policy": os.SCHED_BATCH,
        "processors": [last],
        "session": os.getsid(0),  # otherwise, the child's niceness might have no effect: see core.scheduling
    }


def test_a_child_without_such_limits_is_scheduled_like_its_parent(scratch: Path) -> None:
    found = attempt(scratch, "scheduling")
    assert found == {
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "policy": os.sched_getscheduler(0),
        "processors": sorted(os.sched_getaffinity(0)),
        "session": os.getsid(0),
    }
