"""Tests of detecting hangs, and situations that only look like one. Tests write the table of calls, and use threads of
real processes.
"""

from __future__ import annotations

import math
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from mmap import mmap

import pytest

from service.core.cluster.running import RunningCalls
from service.core.digest import Digest, digest_of
from service.workers.watching import CallWatch, StallClock, Thread, progress_s, thread_of, threads_of
from tests.support.waiting import eventually

SLOTS, DIGEST_BYTES = 16_384, 71  # the constants in service/native/plane/control/loading.cc
RECORD = struct.Struct("<Qdi236s")
RECORDS_AT = SLOTS * (1 + DIGEST_BYTES)
BAD, GOOD = digest_of(b"bad"), digest_of(b"good")
CALLER, OTHER = 1, 2


def progress(
    thread: Thread, *, before_s: float = 0.0, counts_stops: bool = False, other: Thread | None = None
) -> float:
    """Returns the progress of a thread within half a second. Neither this thread nor the `other` thread of its process
    got processor time before.
    """
    before = {CALLER: Thread("R", before_s), OTHER: Thread("R", 0.0)}
    after = {CALLER: thread, OTHER: other or Thread("S", 0.0)}
    return progress_s(0.5, CALLER, before, after, counts_stops=counts_stops)


class TestProgress:
    def test_a_thread_that_computes_makes_progress(self) -> None:
        assert progress(Thread("R", 0.4)) == 0.4

    def test_a_thread_without_a_processor_is_not_at_fault(self) -> None:
        assert progress(Thread("R", 1.0), before_s=1.0) == 0

    def test_at_most_the_elapsed_time_counts(self) -> None:
        assert progress(Thread("R", 9.0)) == 0.5

    def test_a_thread_that_waits_for_no_running_thread_could_have_made_progress(self) -> None:
        assert progress(Thread("S", 0.0)) == 0.5

    def test_a_thread_that_waits_for_another_had_as_much_time_as_that_one(self) -> None:
        assert progress(Thread("S", 0.0), other=Thread("R", 0.1)) == pytest.approx(0.1)

    @pytest.mark.parametrize("state", ["D", "t"], ids=["it waits for a disk", "a debugger holds it"])
    def test_a_thread_in_this_state_is_not_at_fault(self, state: str) -> None:
        assert progress(Thread(state, 0.0), counts_stops=True) == 0

    def test_a_stopped_process_is_at_fault_if_stops_count(self) -> None:
        assert progress(Thread("T", 0.0), counts_stops=True) == 0.5
        assert progress(Thread("T", 0.0)) == 0

    def test_for_a_thread_that_is_gone_all_elapsed_time_counts(self) -> None:
        assert progress_s(0.5, 77, {}, {}, counts_stops=False) == 0.5


@pytest.fixture
def idle() -> Iterator[int]:
    """A process that waits."""
    with subprocess.Popen(
        [sys.executable, "-c", "import time; print(flush=True); time.sleep(1000)"], stdout=-1
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


class TestThreads:
    def test_a_stopped_process_is_recognized(self, idle: int) -> None:
        eventually(lambda: threads_of(idle)[idle].state == "S")
        os.kill(idle, signal.SIGSTOP)
        eventually(lambda: threads_of(idle)[idle].state == "T")

    def test_processor_time_is_measured(self) -> None:
        before = threads_of(os.getpid())[os.getpid()]
        eventually(lambda: threads_of(os.getpid())[os.getpid()].cpu_s > before.cpu_s)

    def test_an_ended_process_has_no_threads(self) -> None:
        assert threads_of(1 << 30) == {}
        assert thread_of(os.getpid(), 1 << 30) is None

    def test_time_counts_while_the_process_only_waits(self, idle: int) -> None:
        clock = StallClock(1.0, counts_stops=True)
        for _ in range(4):  # all elapsed time counts, even if each part is short
            clock.add(0.5, idle, idle)
        eventually(lambda: threads_of(idle)[idle].state == "S")
        before_s = clock.total_s
        clock.add(0.5, idle, idle)
        assert clock.total_s == before_s + 0.5


class Plane:
    """A data plane that writes to the table."""

    def __init__(self, running: RunningCalls) -> None:
        self._memory, self._used = mmap(os.dup(running.descriptor), RECORDS_AT + SLOTS * RECORD.size), 0

    def call(self, artifact: Digest, number: int = 1, limit_s: float = 1.0, model: bytes = b"bad 1") -> int:
        """Begins a call in a new slot."""
        slot = self._used
        self._used += 1
        start = SLOTS + slot * DIGEST_BYTES
        self._memory[start : start + DIGEST_BYTES] = artifact.encode()
        self.note(slot, number, limit_s, model)
        self._memory[slot] = 1
        return slot

    def note(self, slot: int, number: int, limit_s: float = 1.0, model: bytes = b"bad 1") -> None:
        RECORD.pack_into(self._memory, RECORDS_AT + slot * RECORD.size, number, limit_s, 1 << 30, model)

    def end(self, slot: int) -> None:
        self._memory[slot] = 0


class Watched:
    """A table and its watcher. The watched thread does not exist, so all time counts."""

    def __init__(self) -> None:
        running = RunningCalls()
        self.plane, self.watch = Plane(running), CallWatch(running)

    def look(self) -> str:
        return self.watch.look(os.getpid(), 0.3)


@pytest.fixture
def watched() -> Watched:
    return Watched()


class TestCalls:
    def test_a_call_that_does_not_end_is_found(self, watched: Watched) -> None:
        watched.plane.call(BAD)
        quick = watched.plane.call(GOOD, model=b"good 1")
        for number in range(2, 6):
            assert watched.look() == ""
            watched.plane.note(quick, number, model=b"good 1")
        while (found := watched.look()) == "":
            watched.plane.note(quick, number := number + 1, model=b"good 1")
        assert found.startswith("a call of bad 1 did not end in 1.")
        assert watched.watch.hung == [BAD]

    def test_calls_that_end_are_not_found(self, watched: Watched) -> None:
        slot = watched.plane.call(BAD)
        for number in range(2, 20):
            assert watched.look() == ""
            watched.plane.note(slot, number)
        watched.plane.end(slot)
        assert [watched.look() for _ in range(20)] == [""] * 20

    def test_a_call_may_take_as_long_as_its_limit_in_the_table(self, watched: Watched) -> None:
        watched.plane.call(BAD, limit_s=math.inf)
        watched.plane.call(BAD, limit_s=math.nan)
        assert [watched.look() for _ in range(100)] == [""] * 100
        assert watched.watch.hung == []

    def test_all_hung_calls_are_named(self, watched: Watched) -> None:
        for artifact, model in ((BAD, b"bad 1"), (BAD, b"bad 1"), (GOOD, b"a\x1bb\xff")):
            watched.plane.call(artifact, model=model)
        found = [watched.look() for _ in range(10)][-1]
        assert found.startswith("a call of a?b\N{REPLACEMENT CHARACTER} and bad 1 did not end in ")
        assert watched.watch.hung == [BAD, GOOD]

    def test_the_record_starts_anew_with_another_process(self, watched: Watched) -> None:
        watched.plane.call(BAD)
        for _ in range(10):
            watched.look()
        watched.watch.clear()
        assert watched.watch.hung == []
        assert watched.look() == ""
