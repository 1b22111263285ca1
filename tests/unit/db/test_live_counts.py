"""Tests of the table of live counts, on SQLite and PostgreSQL."""

from __future__ import annotations

from typing import Any

import pytest

from service.core.digest import digest_of
from service.core.models.ranges import HEAD, INSIDE, LARGEST, LENGTH, SMALLEST, Counts, StoredRange
from service.db import Database, LiveCountStore, ModelStore
from service.db.live_counts import KEPT_DAYS
from tests.support.manual_clock import ManualClock

DAY_S = 24 * 3600.0
RANGES = (StoredRange("a", 0.5, 0, -128, 127),)


@pytest.fixture
def live(database: Database, clock: ManualClock, models: ModelStore) -> LiveCountStore:
    for number in (1, 2):
        models.push("m", digest_of(f"{number}".encode()), "tflite", 1)
    return LiveCountStore(database, clock)


def counts(smallest: int, largest: int, values: int) -> Counts:
    found = [0] * LENGTH
    found[SMALLEST], found[LARGEST], found[HEAD + INSIDE] = smallest, largest, values
    return tuple(found)


def add(live: LiveCountStore, version: int = 1, artifact: str = "x", dropped: int = 0, **values: Any) -> None:
    row = counts(values.get("smallest", -1), values.get("largest", 1), values.get("values", 10))
    live.add("m", version, artifact, RANGES, [row], 2, dropped)


def test_counts_of_a_day_are_added(live: LiveCountStore) -> None:
    add(live, smallest=-5, largest=3)
    add(live, smallest=-2, largest=9, dropped=4)
    (found,) = live.recent(1)
    assert (found.samples, found.dropped) == (4, 4)
    assert found.ranges == RANGES
    assert found.counts == (counts(-5, 9, 20),)


def test_only_recent_days_are_returned(live: LiveCountStore, clock: ManualClock) -> None:
    add(live, largest=100)
    clock.advance(DAY_S)
    add(live)
    assert [each.counts[0][LARGEST] for each in live.recent(1)] == [1]
    assert [each.counts[0][LARGEST] for each in live.recent(2)] == [100]
    (both,) = live.recent(2)
    assert (both.until - both.since).days == 1


def test_a_newer_artifact_replaces_the_counts_of_an_older_one(live: LiveCountStore, clock: ManualClock) -> None:
    add(live, artifact="x")
    clock.advance(DAY_S)
    add(live, artifact="y")
    (found,) = live.recent(2)
    assert (found.artifact, found.samples) == ("y", 2)


def test_versions_are_separate(live: LiveCountStore) -> None:
    add(live, 1)
    add(live, 2)
    assert [each.version for each in live.recent(1)] == [1, 2]
    assert [each.version for each in live.recent(1, "m", 2)] == [2]
    assert live.recent(1, "other") == []


def test_the_counts_of_a_deleted_version_are_deleted(live: LiveCountStore, models: ModelStore) -> None:
    add(live, 1)
    add(live, 2)
    models.delete("m", 2)
    add(live, 2)  # its last samples arrive after the deletion
    assert [each.version for each in live.recent(1)] == [1]


def test_old_counts_are_deleted(live: LiveCountStore, clock: ManualClock) -> None:
    add(live)
    clock.advance((KEPT_DAYS + 1) * DAY_S)
    add(live)
    (found,) = live.recent(1000)
    assert found.samples == 2
