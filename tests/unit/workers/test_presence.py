from __future__ import annotations

import os
from pathlib import Path

import pytest

from service.core.cluster.worker import WorkerKind, WorkerState
from service.db import Database, WorkerStore
from service.workers.presence import Presence
from tests.support.waiting import eventually


@pytest.fixture
def workers(tmp_path: Path) -> WorkerStore:
    database = Database(f"sqlite:///{tmp_path / 'octet.sqlite3'}")
    database.migrate()
    return WorkerStore(database)


def test_a_process_is_listed_while_it_runs(workers: WorkerStore) -> None:
    with Presence(workers, WorkerKind.COMPILE, 60) as presence:
        eventually(lambda: len(workers.list(60)) == 1)
        worker = workers.list(60)[0]
        assert (worker.id, worker.kind, worker.pid) == (presence.id, WorkerKind.COMPILE, os.getpid())
    assert workers.list(60) == []


def test_it_keeps_sending_heartbeats(workers: WorkerStore) -> None:
    with Presence(workers, WorkerKind.INFERENCE, 0.05):
        eventually(lambda: bool(workers.list(60)))
        first = workers.list(60)[0].seen_at
        eventually(lambda: workers.list(60)[0].seen_at > first)


def test_its_current_build_is_shown_at_once(workers: WorkerStore) -> None:
    with Presence(workers, WorkerKind.COMPILE, 60) as presence:
        eventually(lambda: bool(workers.list(60)))
        presence.set_build("b")
        eventually(lambda: workers.list(60)[0].build == "b")
        presence.set_build(None)
        eventually(lambda: workers.list(60)[0].build is None)


def test_two_in_one_process_have_different_names(workers: WorkerStore) -> None:
    names = {Presence(workers, WorkerKind.COMPILE, 60).id for _ in range(2)}
    assert len(names) == 2


def test_a_failed_write_is_not_fatal(workers: WorkerStore, monkeypatch: pytest.MonkeyPatch) -> None:
    beat, beats = workers.beat, []

    def flaky(worker: object) -> None:
        beats.append(worker)
        if len(beats) == 1:
            raise OSError("busy")
        beat(worker)  # type: ignore[arg-type]

    monkeypatch.setattr(workers, "beat", flaky)
    with Presence(workers, WorkerKind.COMPILE, 0.05) as presence:
        assert not presence.is_listed or len(beats) > 1
        eventually(lambda: presence.is_listed)
        assert workers.list(60)


def test_loaded_models_and_draining_are_shown_at_once(workers: WorkerStore) -> None:
    with Presence(workers, WorkerKind.INFERENCE, 60, pool="p", address="a:1") as presence:
        eventually(lambda: [each.pool for each in workers.list(60)] == ["p"])
        presence.set_loaded([("digits", "2"), ("digits", "")])
        eventually(lambda: workers.list(60)[0].loaded == (("digits", ""), ("digits", "2")))
        version = workers.list(60)[0].loaded_version
        presence.set_loaded([("digits", ""), ("digits", "2")])
        presence.set_draining()
        eventually(lambda: workers.list(60)[0].state is WorkerState.DRAINING)
        assert workers.list(60)[0].loaded_version == version
