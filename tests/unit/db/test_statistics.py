"""Tests of the counts for the metrics, on SQLite and PostgreSQL."""

from __future__ import annotations

from service.core.builds.build import Stage
from service.core.digest import digest_of
from service.core.errors import BuildFailed
from service.db import BuildStore, Claim, Database, StageDurations, Statistics
from tests.support.build_inputs import TARGET, inputs
from tests.support.manual_clock import ManualClock

LEASE_S = 1000.0


def claimed(builds: BuildStore) -> Claim:
    claim = builds.claim("worker", LEASE_S)
    assert claim is not None
    return claim


def test_an_empty_database_has_no_counts(builds: BuildStore) -> None:
    assert builds.statistics([1.0]) == Statistics({}, {}, {}, ())


def test_builds_are_counted_by_target_and_outcome(builds: BuildStore) -> None:
    for number in range(4):
        builds.submit(inputs(source=str(number)), "a", 1)
    builds.submit(inputs(target="aarch64"), "a", 1)
    builds.finish(claimed(builds), artifact=digest_of(b"artifact"))
    builds.finish(claimed(builds), error=BuildFailed())
    claimed(builds)
    statistics = builds.statistics()
    assert statistics.outcomes == {(TARGET, "succeeded"): 1, (TARGET, "failed"): 1}
    assert statistics.running == {TARGET: 1}
    assert statistics.queued == {TARGET: 1, "aarch64": 1}


def test_stage_durations_are_a_histogram(builds: BuildStore, clock: ManualClock) -> None:
    for seconds in (0.5, 4.0):
        builds.submit(inputs(source=str(seconds)), "a", 1)
        claim = claimed(builds)
        builds.progress(claim, Stage.IMPORT)
        clock.advance(seconds)
        builds.progress(claim, Stage.LINK)
        clock.advance(2)
        builds.finish(claim, artifact=digest_of(b"artifact"))
    assert builds.statistics([1.0, 4.0, 10.0]).durations == (
        StageDurations(TARGET, "import", 2, 4.5, (1, 2, 2)),
        StageDurations(TARGET, "link", 2, 4.0, (0, 2, 2)),
    )


def test_the_stage_in_which_a_build_failed_counts(builds: BuildStore, clock: ManualClock) -> None:
    builds.submit(inputs(), "a", 1)
    claim = claimed(builds)
    builds.progress(claim, Stage.CODEGEN)
    clock.advance(3)
    builds.finish(claim, error=BuildFailed())
    assert builds.statistics().durations == (StageDurations(TARGET, "codegen", 1, 3.0, ()),)


def test_a_clock_set_back_gives_no_negative_duration(builds: BuildStore, clock: ManualClock) -> None:
    builds.submit(inputs(), "a", 1)
    claim = claimed(builds)
    builds.progress(claim, Stage.CODEGEN)
    clock.advance(-3)
    builds.finish(claim, artifact=digest_of(b"artifact"))
    assert builds.statistics().durations[0].sum_s == 0.0


def test_counts_survive_a_restart_and_the_loss_of_an_artifact(
    builds: BuildStore, database: Database, clock: ManualClock
) -> None:
    builds.submit(inputs(), "a", 1)
    claim = claimed(builds)
    builds.progress(claim, Stage.LINK)
    builds.finish(claim, artifact=digest_of(b"artifact"))
    before = builds.statistics([1.0])
    builds.invalidate(digest_of(b"artifact"))
    assert BuildStore(database, clock).statistics([1.0]) == before
