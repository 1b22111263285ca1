from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from service.core.cluster.worker import Beat, Worker, WorkerKind, WorkerState
from service.core.errors import DatabaseUnreachable
from service.workers.routing import Members

HEARTBEAT_S = 2.0
START = datetime(2026, 1, 1, tzinfo=UTC)
WORKER = Worker("w1", WorkerKind.INFERENCE, "h", 1, "x86-64-v3", START, START, pool="p", address="h:1", capacity=2)


class Table:
    """Rows, with the time since each was last written."""

    def __init__(self) -> None:
        self.rows: dict[str, Worker] = {}
        self.silent_s: dict[str, float] = {}
        self.reads: list[Collection[str]] = []
        self.is_there = True

    def put(self, worker: Worker, silent_s: float = 0.0) -> None:
        self.rows[worker.id], self.silent_s[worker.id] = worker, silent_s

    def beats(self, within_s: float) -> Collection[Beat]:
        if not self.is_there:
            raise DatabaseUnreachable
        return [
            Beat(id, row.state, row.loaded_version, self.silent_s[id])
            for id, row in self.rows.items()
            if self.silent_s[id] <= within_s
        ]

    def find(self, ids: Collection[str]) -> Collection[Worker]:
        self.reads.append(sorted(ids))
        return [self.rows[id] for id in ids if id in self.rows]


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def members(table: Table, clock: Clock) -> Members:
    return Members(table, HEARTBEAT_S, clock)


def test_workers_that_send_heartbeats_are_running(members: Members, table: Table) -> None:
    table.put(WORKER)
    assert members.look() == {"w1": WORKER}


@pytest.mark.parametrize(("silent_s", "is_there"), [(3.9, True), (4.1, False)])
def test_a_worker_without_a_heartbeat_for_two_intervals_is_gone(
    silent_s: float, is_there: bool, members: Members, table: Table
) -> None:
    table.put(WORKER)
    members.look()
    table.put(WORKER, silent_s)
    assert ("w1" in members.look()) is is_there


def test_a_worker_whose_row_is_deleted_is_gone(members: Members, table: Table) -> None:
    table.put(WORKER)
    members.look()
    table.rows.clear()
    assert members.look() == {}


def test_a_row_is_read_again_only_if_its_loaded_models_have_changed(members: Members, table: Table) -> None:
    table.put(WORKER)
    table.put(replace(WORKER, id="w2"))
    members.look()
    members.look()
    table.put(replace(WORKER, loaded=(("digits", ""),), loaded_version=1))
    assert members.look()["w1"].loaded == (("digits", ""),)
    assert table.reads == [["w1", "w2"], ["w1"]]


def test_the_heartbeat_contains_that_a_worker_drains(members: Members, table: Table) -> None:
    table.put(WORKER)
    members.look()
    table.put(replace(WORKER, state=WorkerState.DRAINING))
    assert members.look()["w1"].state is WorkerState.DRAINING
    assert len(table.reads) == 1


def test_after_an_outage_of_the_database_workers_have_time_to_send_a_heartbeat(
    members: Members, table: Table, clock: Clock
) -> None:
    table.put(WORKER)
    members.look()
    table.is_there = False
    for _ in range(10):
        clock.now_s += 3
        with pytest.raises(DatabaseUnreachable):
            members.look()
    table.is_there = True
    table.put(WORKER, 31.0)
    table.put(replace(WORKER, id="died before"), 40.0)
    assert set(members.look()) == {"w1"}
    for _ in range(3):
        clock.now_s += 1.5
        table.put(WORKER, table.silent_s["w1"] + 1.5)
        there = set(members.look())
    assert there == set()
