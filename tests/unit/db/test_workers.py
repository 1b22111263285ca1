"""The table of workers, on every engine."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from service.core.clock import ManualClock
from service.core.worker import Worker, WorkerKind
from service.db import Database, WorkerStore

START = datetime(2026, 1, 1, tzinfo=UTC)
ONE = Worker("one", WorkerKind.COMPILE, "here", 1, "x86-64-v3", START, START)
TWO = Worker("two", WorkerKind.INFERENCE, "there", 2, None, START, START)


@pytest.fixture
def workers(database: Database, clock: ManualClock) -> WorkerStore:
    return WorkerStore(database, clock)


def test_a_worker_is_listed_as_it_said(workers: WorkerStore) -> None:
    workers.beat(ONE)
    workers.beat(TWO)
    assert workers.list(30) == [ONE, TWO]


def test_its_last_word_counts(workers: WorkerStore, clock: ManualClock) -> None:
    workers.beat(ONE)
    clock.advance(5)
    workers.beat(replace(ONE, build="b"))
    assert workers.list(30) == [replace(ONE, build="b", seen_at=START + timedelta(seconds=5))]


def test_one_that_fell_silent_is_not_listed(workers: WorkerStore, clock: ManualClock) -> None:
    workers.beat(ONE)
    clock.advance(20)
    workers.beat(TWO)
    clock.advance(20)
    assert [worker.id for worker in workers.list(30)] == ["two"]


def test_one_that_ended_is_not_listed(workers: WorkerStore) -> None:
    workers.beat(ONE)
    workers.remove("one")
    workers.remove("never was")
    assert workers.list(30) == []


def test_those_that_were_killed_are_forgotten_after_a_day(workers: WorkerStore, clock: ManualClock) -> None:
    workers.beat(ONE)
    clock.advance(25 * 3600)
    workers.beat(TWO)
    assert [worker.id for worker in workers.list(1e9)] == ["two"]
