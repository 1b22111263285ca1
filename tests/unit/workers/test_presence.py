from __future__ import annotations

import os
from pathlib import Path

import pytest

from service.core.worker import WorkerKind, WorkerState
from service.db import Database, WorkerStore
from service.workers.presence import Presence
from tests.support.waiting import eventually


@pytest.fixture
def workers(tmp_path: Path) -> WorkerStore:
    database = Database(f"sqlite:///{tmp_path / 'octet.sqlite3'}")
    database.migrate()
    return WorkerStore(database)


def test_a_process_is_listed_while_it_is_there(workers: WorkerStore) -> None:
    with Presence(workers, WorkerKind.COMPILE, 60) as presence:
        eventually(lambda: len(workers.list(60)) == 1)
        worker = workers.list(60)[0]
        assert (worker.id, worker.kind, worker.pid) == (presence.id, WorkerKind.COMPILE, os.getpid())
    assert workers.list(60) == []


def test_it_goes_on_giving_signs_of_life(workers: WorkerStore) -> None:
    with Presence(workers, WorkerKind.INFERENCE, 0.05):
        eventually(lambda: bool(workers.list(60)))
        first = workers.list(60)[0].seen_at
        eventually(lambda: workers.list(60)[0].seen_at > first)


def test_what_it_works_on_is_told_at_once(workers: WorkerStore) -> None:
    with Presence(workers, WorkerKind.COMPILE, 60) as presence:
        eventually(lambda: bool(workers.list(60)))
        presence.works_on("b")
        eventually(lambda: workers.list(60)[0].build == "b")
        presence.works_on(None)
        eventually(lambda: workers.list(60)[0].build is None)


def test_two_of_one_process_have_different_names(workers: WorkerStore) -> None:
    names = {Presence(workers, WorkerKind.COMPILE, 60).id for _ in range(2)}
    assert len(names) == 2


def test_a_table_that_cannot_be_written_is_not_the_end(workers: WorkerStore, monkeypatch: pytest.MonkeyPatch) -> None:
    beat, beats = workers.beat, []

    def flaky(worker: object) -> None:
        beats.append(worker)
        if len(beats) == 1:
            raise OSError("busy")
        beat(worker)  # type: ignore[arg-type]

    monkeypatch.setattr(workers, "beat", flaky)
    with Presence(workers, WorkerKind.COMPILE, 0.05) as presence:
        assert not presence.is_seen or len(beats) > 1
        eventually(lambda: presence.is_seen)
        assert workers.list(60)


def test_a_member_of_a_cluster_says_at_once_what_it_has_loaded_and_that_it_ends(workers: WorkerStore) -> None:
    with Presence(workers, WorkerKind.INFERENCE, 60, pool="p", address="a:1") as presence:
        eventually(lambda: [each.pool for each in workers.list(60)] == ["p"])
        presence.has_loaded([("digits", "2"), ("digits", "")])
        eventually(lambda: workers.list(60)[0].loaded == (("digits", ""), ("digits", "2")))
        version = workers.list(60)[0].loaded_version
        presence.has_loaded([("digits", ""), ("digits", "2")])
        presence.drains()
        eventually(lambda: workers.list(60)[0].state is WorkerState.DRAINING)
        assert workers.list(60)[0].loaded_version == version
