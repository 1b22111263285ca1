"""Tests of the table of workers, on SQLite and PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from service.core.cluster.worker import Beat, Worker, WorkerKind, WorkerState
from service.db import Database, WorkerStore
from tests.support.manual_clock import ManualClock
from tests.support.waiting import eventually

START = datetime(2026, 1, 1, tzinfo=UTC)
ONE = Worker("one", WorkerKind.COMPILE, "here", 1, "x86-64-v3", START, START)
TWO = Worker("two", WorkerKind.INFERENCE, "there", 2, None, START, START)


@pytest.fixture
def workers(database: Database, clock: ManualClock) -> WorkerStore:
    return WorkerStore(database, clock)


def test_a_worker_is_listed_with_its_values(workers: WorkerStore) -> None:
    workers.beat(ONE)
    workers.beat(TWO)
    assert workers.list(30) == [ONE, TWO]


def test_the_last_heartbeat_counts(workers: WorkerStore, clock: ManualClock) -> None:
    workers.beat(ONE)
    clock.advance(5)
    workers.beat(replace(ONE, build="b"))
    assert workers.list(30) == [replace(ONE, build="b", seen_at=START + timedelta(seconds=5))]


def test_a_worker_without_heartbeats_is_not_listed(workers: WorkerStore, clock: ManualClock) -> None:
    workers.beat(ONE)
    clock.advance(20)
    workers.beat(TWO)
    clock.advance(20)
    assert [worker.id for worker in workers.list(30)] == ["two"]


def test_a_worker_that_ended_is_not_listed(workers: WorkerStore) -> None:
    workers.beat(ONE)
    workers.remove("one")
    workers.remove("never was")
    assert workers.list(30) == []


def test_killed_workers_are_deleted_after_a_day(workers: WorkerStore, clock: ManualClock) -> None:
    workers.beat(ONE)
    clock.advance(25 * 3600)
    workers.beat(TWO)
    assert [worker.id for worker in workers.list(1e9)] == ["two"]


NAMES = (("digits", ""), ("digits", "2"), ("digits", "stable"))
MEMBER = replace(
    TWO,
    id="member",
    pool="p",
    address="10.0.0.1:8080",
    features=("avx2", "fma"),
    capacity=4,
    loaded=NAMES,
    loaded_version=7,
    release="1.2.3",
    state=WorkerState.DRAINING,
)


def test_a_worker_of_a_cluster_is_listed_with_its_values(workers: WorkerStore) -> None:
    workers.beat(MEMBER)
    assert workers.list(30) == workers.find(["member", "nobody"]) == [MEMBER]


def test_beats_contain_only_workers_of_a_cluster(workers: WorkerStore, clock: ManualClock) -> None:
    for each in (ONE, TWO, MEMBER):
        workers.beat(each)
    clock.advance(3)
    assert workers.beats(30) == [Beat("member", WorkerState.DRAINING, 7, 3.0)]
    assert workers.beats(2) == []


def test_loaded_models_are_written_when_their_version_changes(workers: WorkerStore) -> None:
    workers.beat(MEMBER)
    workers.beat(replace(MEMBER, loaded=()))
    assert workers.find(["member"])[0].loaded == NAMES
    workers.beat(replace(MEMBER, loaded=(), loaded_version=8))
    assert workers.find(["member"])[0].loaded == ()


@pytest.mark.parametrize("change", [{"state": WorkerState.READY}, {"loaded_version": 8}])
def test_changes_of_workers_send_notifications(
    change: dict[str, Any], database: Database, workers: WorkerStore
) -> None:
    workers.beat(MEMBER)
    count = database.notifications.count()
    workers.beat(replace(MEMBER, **change))
    eventually(lambda: database.notifications.count() > count)


def test_a_worker_whose_row_was_deleted_is_listed_again(workers: WorkerStore) -> None:
    workers.beat(MEMBER)
    workers.remove("member")
    workers.beat(MEMBER)
    assert workers.list(30) == [MEMBER]
