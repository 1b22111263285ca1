"""Tests of which artifacts are blamed for crashes."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.core.cluster.crash import Records
from service.core.digest import digest_of
from service.core.errors import DatabaseUnreachable, Quarantined
from service.db import CrashTable, Database
from service.workers.crashes import Crashes, CrashFile
from tests.support.databases import database, database_url, postgres_schema, postgres_server
from tests.support.manual_clock import ManualClock

__all__ = ["database", "database_url", "postgres_schema", "postgres_server"]

GUILTY, INNOCENT, THIRD = (digest_of(name) for name in (b"guilty", b"innocent", b"third"))
WINDOW_S = 100.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def crashes(tmp_path: Path, clock: ManualClock) -> Crashes:
    return Crashes(CrashFile(tmp_path / "data" / "crashes.json"), 3, WINDOW_S, clock)


def test_the_third_crash_within_the_window_quarantines(crashes: Crashes) -> None:
    for _ in range(2):
        crashes.note([GUILTY], "signal 11")
        assert crashes.check(GUILTY)
    crashes.note([GUILTY], "signal 11")
    with pytest.raises(Quarantined, match=r"crashed 3 times while it ran, the last time at .* \(signal 11\)"):
        crashes.check(GUILTY)
    assert list(crashes.quarantined()) == [GUILTY]


def test_old_crashes_are_forgotten_but_a_quarantine_stays(crashes: Crashes, clock: ManualClock) -> None:
    for _ in range(3):
        crashes.note([INNOCENT], "")
        clock.advance(WINDOW_S / 2 + 1)
    assert crashes.check(INNOCENT)
    crashes.note([GUILTY], "")
    crashes.note([GUILTY], "")
    crashes.note([GUILTY], "")
    clock.advance(10 * WINDOW_S)
    assert not crashes.check(INNOCENT)
    with pytest.raises(Quarantined):
        crashes.check(GUILTY)


def test_if_a_crash_names_a_suspect_only_the_suspect_is_blamed(crashes: Crashes) -> None:
    assert crashes.note([GUILTY, INNOCENT], "").keys() == {GUILTY, INNOCENT}
    assert crashes.note([THIRD, GUILTY], "").keys() == {GUILTY}
    assert crashes.note([GUILTY], "")[GUILTY].is_quarantined
    assert crashes.check(INNOCENT)
    assert not crashes.check(THIRD)


def test_other_and_later_processes_see_the_record(crashes: Crashes, tmp_path: Path) -> None:
    other = Crashes(CrashFile(tmp_path / "data" / "crashes.json"), 1, WINDOW_S, ManualClock())
    crashes.note([GUILTY], "")
    assert other.check(GUILTY)
    assert other.forgive(GUILTY)
    assert not crashes.check(GUILTY)
    assert not other.forgive(GUILTY)


def test_an_unreadable_or_unwritable_record_is_not_fatal(crashes: Crashes, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "crashes.json").write_text("{")
    assert not crashes.check(GUILTY)
    (tmp_path / "data" / "crashes.json").unlink()
    (tmp_path / "data" / "crashes.json").mkdir()
    for _ in range(3):
        crashes.note([GUILTY], "")
    with pytest.raises(Quarantined):
        crashes.check(GUILTY)


@pytest.fixture
def machines(database: Database, tmp_path: Path, clock: ManualClock) -> list[Crashes]:
    """The crash records of the machines of a cluster. `noted` returns what the supervisor of each machine records."""
    return [
        Crashes(CrashTable(database), 3, WINDOW_S, clock, local=CrashFile(tmp_path / name / "crashes.json"))
        for name in ("one", "two")
    ]


@pytest.fixture
def noted(tmp_path: Path, clock: ManualClock) -> list[Crashes]:
    return [Crashes(CrashFile(tmp_path / name / "crashes.json"), 3, WINDOW_S, clock) for name in ("one", "two")]


def test_machines_that_share_a_database_count_crashes_together(
    machines: list[Crashes], noted: list[Crashes], clock: ManualClock
) -> None:
    for supervisor in (noted[0], noted[1]):
        supervisor.note([GUILTY], "signal 11")
        clock.advance(1)
    assert machines[0].check(GUILTY)
    assert machines[1].check(GUILTY)
    noted[1].note([GUILTY], "signal 6")
    for machine in (machines[1], machines[0]):
        with pytest.raises(Quarantined, match=r"crashed 3 times .* \(signal 6\)"):
            machine.check(GUILTY)
    assert machines[0].forgive(GUILTY)
    assert not machines[1].check(GUILTY)
    assert not machines[0].check(INNOCENT)


def test_records_that_the_database_cannot_take_are_cached_and_uploaded_later(
    machines: list[Crashes], noted: list[Crashes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> Records:
        raise DatabaseUnreachable("it is away")

    with monkeypatch.context() as away:
        away.setattr(CrashTable, "read", fail)
        away.setattr(CrashTable, "change", fail)
        for _ in range(3):
            noted[0].note([GUILTY], "signal 11")
        with pytest.raises(Quarantined):
            machines[0].check(GUILTY)
    with pytest.raises(Quarantined):
        machines[0].check(GUILTY)
    with pytest.raises(Quarantined):
        machines[1].check(GUILTY)
    assert noted[0].quarantined() == {}
