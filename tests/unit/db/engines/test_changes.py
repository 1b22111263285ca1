"""Tests of notifications of changed models: on PostgreSQL, and on SQLite, which reports only that something changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from service.core.digest import digest_of
from service.core.models.metadata import ModelMetadata
from service.db import AliasStore, BuildStore, Database, ModelStore, VerificationStore
from service.db.engines.changes import Changes, Journal
from tests.support.build_inputs import inputs
from tests.support.manual_clock import ManualClock
from tests.support.waiting import eventually

LEASE_S = 30.0


@pytest.fixture
def other(database_url: str) -> Iterator[Database]:
    """A second connection to the database, like that of another process. It writes nothing."""
    database = Database(database_url)
    yield database
    database.close()


class Reader:
    """Polls for changes like a server."""

    def __init__(self, changes: Changes) -> None:
        self._changes, self._mark = changes, -1
        eventually(self._is_quiet)

    def _is_quiet(self) -> bool:
        self._mark, changed = self._changes.since(self._mark)
        return changed is not None and not changed

    def hears(self, model: str) -> bool:
        self._mark, changed = self._changes.since(self._mark)
        return changed is None or model in changed


def build(builds: BuildStore, model: str, version: int) -> None:
    builds.submit(inputs(source=model), model, version)
    claim = builds.claim("worker", LEASE_S)
    assert claim is not None
    builds.finish(claim, artifact=digest_of(b"artifact"))


def verify(verifications: VerificationStore) -> None:
    claim = verifications.claim("worker", "p", LEASE_S, ["x86-64-v3"])
    assert claim is not None
    verifications.finish(claim, passed=True, result={})


def test_every_change_of_a_model_is_reported(
    database: Database, other: Database, builds: BuildStore, models: ModelStore, clock: ManualClock
) -> None:
    aliases, verifications = AliasStore(database, clock), VerificationStore(database, clock)
    reader = Reader(other.changes)
    changes: dict[str, Callable[[], object]] = {
        "a version": lambda: models.push("a", digest_of(b"1"), "tflite", 1),
        "another": lambda: models.push("a", digest_of(b"2"), "tflite", 1),
        "what is known of it": lambda: models.describe("a", 1, ModelMetadata(labels=("x",))),
        "an alias": lambda: aliases.promote("a", "stable", 1, 100),
        "one that is changed": lambda: aliases.promote("a", "stable", 2, 100),
        "one that is rolled back": lambda: aliases.rollback("a", "stable"),
        "one that is removed": lambda: aliases.remove("a", "stable"),
        "a build": lambda: build(builds, "a", 1),
        "a build that another model wants, too": lambda: builds.submit(inputs(source="a"), "a", 2),
        "a verification that it waits for": lambda: verifications.submit(digest_of(b"artifact"), "x86-64-v3"),
        "one that has passed": lambda: verify(verifications),
        "one that is lost": lambda: builds.invalidate(digest_of(b"artifact")),
        "what is deleted": lambda: models.delete("a"),
    }
    for change in changes.values():
        change()
        eventually(lambda: reader.hears("a"))
        eventually(reader._is_quiet)


def test_a_build_is_reported_for_all_models_that_requested_it(other: Database, builds: BuildStore) -> None:
    for model in ("a", "b"):
        builds.submit(inputs(), model, 1)
    reader, second = Reader(other.changes), Reader(other.changes)
    claim = builds.claim("worker", LEASE_S)
    assert claim is not None
    builds.finish(claim, artifact=digest_of(b"artifact"))
    eventually(lambda: reader.hears("a"))
    eventually(lambda: second.hears("b"))


def test_heartbeats_of_a_build_are_not_reported(database: Database, other: Database, builds: BuildStore) -> None:
    if database.is_sqlite:
        pytest.skip("SQLite knows only that something has changed")
    builds.submit(inputs(), "a", 1)
    claim = builds.claim("worker", LEASE_S)
    assert claim is not None
    reader = Reader(other.changes)
    builds.heartbeat(claim, LEASE_S)
    builds.log(claim, "a line")
    builds.submit(inputs(source="else"), "b", 1)
    names: set[str] = set()

    def until_the_last() -> bool:
        reader._mark, changed = other.changes.since(reader._mark)
        names.update(changed or ())
        return "b" in names

    eventually(until_the_last)
    assert names == {"b"}


def test_a_journal_returns_the_changes_since_a_mark() -> None:
    journal = Journal()
    journal.note_gap()
    mark, changed = journal.since(-1)
    assert changed is None
    assert journal.since(mark) == (mark, frozenset())
    for model in ("a", "b", "a"):
        journal.note(model)
    later, changed = journal.since(mark)
    assert changed == {"a", "b"}
    assert journal.since(later - 1) == (later, {"a"})
    assert journal.since(later) == (later, frozenset())


def test_after_a_gap_any_model_may_have_changed() -> None:
    journal = Journal()
    journal.note("a")
    mark, _ = journal.since(-1)
    journal.note_gap()
    later, changed = journal.since(mark)
    assert changed is None
    assert journal.since(later) == (later, frozenset())


def test_a_mark_that_is_too_old_may_have_missed_any_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.db.engines.changes._REMEMBERED", 2)
    journal = Journal()
    marks = [journal.since(-1)[0]]
    for model in ("a", "b", "c"):
        journal.note(model)
        marks.append(journal.since(marks[-1])[0])
    assert [journal.since(mark)[1] for mark in marks] == [None, {"b", "c"}, {"c"}, frozenset()]
