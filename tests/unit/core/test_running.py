"""Notes of what runs, in memory that a fork shares."""

from __future__ import annotations

import os
import signal

from service.core.digest import digest_of
from service.core.running import Running

FIRST, SECOND = digest_of(b"first"), digest_of(b"second")


def test_only_marked_artifacts_are_named_each_once() -> None:
    running = Running()
    one, other = running.place(FIRST), running.place(SECOND)
    clone = one.another()
    assert running.marked() == []
    with one, clone:
        assert running.marked() == [FIRST]
        with other:
            assert running.marked() == [FIRST, SECOND]
    assert running.marked() == []


def test_a_mark_outlives_the_process_that_set_it() -> None:
    running = Running()
    pid = os.fork()
    if pid == 0:
        place = running.place(FIRST)
        place.mark[0] = 1
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert running.marked() == [FIRST]
    running.clear()
    assert running.marked() == []


def test_places_are_given_back() -> None:
    running = Running()
    for _ in range(100):
        running.place(FIRST)
    kept = [running.place(SECOND) for _ in range(3)]
    kept[2].mark[0] = 1
    assert running.marked() == [SECOND]
    assert running._used <= 4
