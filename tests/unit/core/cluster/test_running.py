"""Tests of the table of running calls, in memory that another process writes."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys

from service.core.cluster.running import RunningCalls
from service.core.digest import Digest, digest_of

FIRST, SECOND = digest_of(b"first"), digest_of(b"second")
SLOTS, DIGEST_BYTES = 16_384, 71  # the constants of service/native/plane/control/loading.cc
# Marks an artifact, and is then killed. Arguments: the descriptor, the sizes, and the digest.
KILLED = """
import mmap, os, signal, sys
descriptor, slots, digest_bytes = map(int, sys.argv[1:4])
memory = mmap.mmap(descriptor, slots * (1 + digest_bytes))
memory[slots : slots + digest_bytes] = sys.argv[4].encode()
memory[0] = True
os.kill(os.getpid(), signal.SIGKILL)
"""


class DataPlane:
    """Writes to the inherited memory like a data plane."""

    def __init__(self, running: RunningCalls) -> None:
        self._memory = mmap.mmap(os.dup(running.descriptor), SLOTS * (1 + DIGEST_BYTES))
        self._used = 0

    def place(self, artifact: Digest) -> int:
        start = SLOTS + self._used * DIGEST_BYTES
        self._memory[start : start + DIGEST_BYTES] = artifact.encode()
        self._used += 1
        return self._used - 1

    def mark(self, position: int, is_running: bool = True) -> None:
        self._memory[position] = is_running


def test_marked_artifacts_are_listed_once() -> None:
    running = RunningCalls()
    plane = DataPlane(running)
    one, other, clone = plane.place(FIRST), plane.place(SECOND), plane.place(FIRST)
    assert running.marked_artifacts() == []
    plane.mark(one)
    plane.mark(clone)
    assert running.marked_artifacts() == [FIRST]
    plane.mark(other)
    assert running.marked_artifacts() == [FIRST, SECOND]
    for each in (one, other, clone):
        plane.mark(each, False)
    assert running.marked_artifacts() == []


def test_a_mark_outlives_the_process_that_set_it() -> None:
    running = RunningCalls()
    numbers = running.descriptor, SLOTS, DIGEST_BYTES
    command = [sys.executable, "-c", KILLED, *map(str, numbers), FIRST]
    assert subprocess.run(command, pass_fds=[running.descriptor]).returncode == -signal.SIGKILL
    assert running.marked_artifacts() == [FIRST]
    running.clear()
    assert running.marked_artifacts() == []


def test_invalid_digests_are_ignored() -> None:
    running = RunningCalls()
    plane = DataPlane(running)
    plane.mark(plane.place(Digest("x" * DIGEST_BYTES)))
    assert running.marked_artifacts() == []
