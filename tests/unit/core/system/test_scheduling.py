"""Tests of lowering the priority of background work."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import json, os, sys
from service.core.system.scheduling import lower_priority
os.nice(int(sys.argv[1]))
lower_priority(int(sys.argv[2]))
print(json.dumps([os.nice(0), os.sched_getscheduler(0)]))
"""


def found(before: int, nice: int) -> tuple[int, int]:
    """Returns niceness and scheduling policy after `lower_priority(nice)` in a process whose niceness was `before`."""
    printed = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(before), str(nice)], capture_output=True, text=True, check=True
    )
    niceness, policy = json.loads(printed.stdout)
    return niceness, policy


@pytest.mark.parametrize(("before", "nice", "after"), [(0, 8, 8), (3, 8, 8), (9, 8, 9)])
def test_niceness_is_a_minimum(before: int, nice: int, after: int) -> None:
    own = os.nice(0)
    assert found(before, nice + own) == (after + own, os.SCHED_BATCH)


def test_without_niceness_nothing_changes() -> None:
    assert found(0, 0) == (os.nice(0), os.sched_getscheduler(0))
