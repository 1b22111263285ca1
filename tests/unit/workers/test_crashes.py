"""What crashes are put down to."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.core.clock import ManualClock
from service.core.digest import digest_of
from service.core.errors import Quarantined
from service.workers.crashes import Crashes

GUILTY, INNOCENT, THIRD = (digest_of(name) for name in (b"guilty", b"innocent", b"third"))
WINDOW_S = 100.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def crashes(tmp_path: Path, clock: ManualClock) -> Crashes:
    return Crashes(tmp_path / "data" / "crashes.json", 3, WINDOW_S, clock)


def test_the_third_crash_in_the_window_is_one_too_many(crashes: Crashes) -> None:
    for _ in range(2):
        crashes.note([GUILTY], "signal 11")
        assert crashes.check(GUILTY)
    crashes.note([GUILTY], "signal 11")
    with pytest.raises(Quarantined, match=r"crashed 3 times while it ran, the last time at .* \(signal 11\)"):
        crashes.check(GUILTY)
    assert list(crashes.quarantined()) == [GUILTY]


def test_crashes_are_forgotten_in_time_but_not_a_quarantine(crashes: Crashes, clock: ManualClock) -> None:
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


def test_a_crash_that_names_a_suspect_is_its_alone(crashes: Crashes) -> None:
    assert crashes.note([GUILTY, INNOCENT], "").keys() == {GUILTY, INNOCENT}
    assert crashes.note([THIRD, GUILTY], "").keys() == {GUILTY}
    assert crashes.note([GUILTY], "")[GUILTY].is_quarantined
    assert crashes.check(INNOCENT)
    assert not crashes.check(THIRD)


def test_another_process_sees_it_and_one_that_starts_later_too(crashes: Crashes, tmp_path: Path) -> None:
    other = Crashes(tmp_path / "data" / "crashes.json", 1, WINDOW_S, ManualClock())
    crashes.note([GUILTY], "")
    assert other.check(GUILTY)
    assert other.forgive(GUILTY)
    assert not crashes.check(GUILTY)
    assert not other.forgive(GUILTY)


def test_a_record_that_cannot_be_read_or_written_stops_nobody(crashes: Crashes, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "crashes.json").write_text("{")
    assert not crashes.check(GUILTY)
    (tmp_path / "data" / "crashes.json").unlink()
    (tmp_path / "data" / "crashes.json").mkdir()
    for _ in range(3):
        crashes.note([GUILTY], "")
    with pytest.raises(Quarantined):
        crashes.check(GUILTY)
