"""Tests of the table of prediction jobs, on SQLite and PostgreSQL."""

from __future__ import annotations

import pytest

from service.core.errors import NotFound, QueueFull
from service.core.models.job import JobOwner, JobState
from service.db import Database, PredictionJobStore
from service.db.prediction_jobs import LEASE_S
from tests.support.manual_clock import ManualClock

ALICE, BOB = JobOwner("acme", "alice"), JobOwner("acme", "bob")
KEPT_S = 100.0


@pytest.fixture
def jobs(database: Database, clock: ManualClock) -> PredictionJobStore:
    return PredictionJobStore(database, KEPT_S, most_jobs=3, most_bytes=1000, clock=clock)


def test_a_job_has_a_result_for_its_owner_only(jobs: PredictionJobStore) -> None:
    started = jobs.add("a", ALICE, "acme~m", samples=2, size_bytes=10)
    assert (started.state, started.completed, started.result) == (JobState.RUNNING, 0, None)
    assert jobs.report({"a": 1}) == {"a"}
    assert jobs.get("a", ALICE).completed == 1
    jobs.succeed("a", "acme", '{"é": 1}')
    job = jobs.get("a", ALICE)
    assert (job.state, job.completed, job.result, job.error) == (JobState.SUCCEEDED, 2, '{"é": 1}', None)
    assert jobs.get("a", ALICE, with_result=False).result is None
    assert [each.id for each in jobs.list(ALICE)] == ["a"]
    for other in (BOB, JobOwner("", "alice"), JobOwner("", "")):
        assert jobs.list(other) == []
        with pytest.raises(NotFound):
            jobs.get("a", other)
        with pytest.raises(NotFound):
            jobs.delete("a", other)


def test_the_end_of_a_job_is_final(jobs: PredictionJobStore) -> None:
    jobs.add("a", ALICE, "m", 1, 0)
    jobs.fail("a", {"code": "not_found", "message": "gone"})
    jobs.succeed("a", "acme", "{}")
    job = jobs.get("a", ALICE)
    assert (job.state, job.error, job.result) == (JobState.FAILED, {"code": "not_found", "message": "gone"}, None)
    assert jobs.report({"a": 1}) == set()


def test_a_deleted_job_is_not_run_any_more(jobs: PredictionJobStore) -> None:
    jobs.add("a", ALICE, "m", 1, 0)
    jobs.delete("a", ALICE)
    assert jobs.report({"a": 0}) == set()
    jobs.succeed("a", "acme", "{}")
    with pytest.raises(NotFound):
        jobs.get("a", ALICE)


def test_a_job_is_lost_with_its_process(jobs: PredictionJobStore, clock: ManualClock) -> None:
    jobs.add("a", ALICE, "m", 1, 900)
    clock.advance(LEASE_S - 1)
    assert jobs.report({"a": 0}) == {"a"}
    clock.advance(LEASE_S - 1)
    assert jobs.get("a", ALICE).state is JobState.RUNNING
    clock.advance(2)
    job = jobs.get("a", ALICE)
    assert job.state is JobState.FAILED
    assert job.error is not None
    assert "send the request again" in job.error["hint"]
    jobs.add("b", ALICE, "m", 1, 900)  # the bytes of the lost job are free
    assert jobs.get("a", ALICE).state is JobState.FAILED


def test_a_result_is_kept_for_a_limited_time(jobs: PredictionJobStore, clock: ManualClock) -> None:
    jobs.add("a", ALICE, "m", 1, 0)
    clock.advance(LEASE_S / 2)
    jobs.succeed("a", "acme", "{}")
    clock.advance(KEPT_S - 1)
    assert jobs.get("a", ALICE).result == "{}"
    clock.advance(2)
    with pytest.raises(NotFound, match="no job 'a'"):
        jobs.get("a", ALICE)
    assert jobs.list(ALICE) == []
    jobs.clean_up()
    jobs.add("a", ALICE, "m", 1, 0)  # its row is gone


def test_the_jobs_of_a_tenant_are_limited_together(jobs: PredictionJobStore) -> None:
    for id, owner in (("a", ALICE), ("b", BOB), ("c", ALICE)):
        jobs.add(id, owner, "m", 1, 0)
    with pytest.raises(QueueFull, match="there are 3 jobs, and the limit is 3"):
        jobs.add("d", BOB, "m", 1, 0)
    jobs.add("d", JobOwner("", "alice"), "m", 1, 0)
    jobs.delete("c", ALICE)
    jobs.add("e", BOB, "m", 1, 0)


def test_inputs_and_results_share_the_bytes_of_a_tenant(jobs: PredictionJobStore) -> None:
    jobs.add("a", ALICE, "m", 1, 600)
    with pytest.raises(QueueFull, match="the job has 500 bytes, but only 400 of 1000 are free"):
        jobs.add("b", BOB, "m", 1, 500)
    jobs.succeed("a", "acme", "x" * 100)  # the input is not needed any more
    jobs.add("b", BOB, "m", 1, 500)
    jobs.add("c", BOB, "m", 1, 100)
    jobs.succeed("b", "acme", "x" * 801)
    assert jobs.get("b", BOB).error == {
        "code": "too_large",
        "message": "the result has 801 bytes, but only 800 of 1000 are free",
        "hint": "send fewer samples at a time, and delete earlier jobs",
    }
    jobs.succeed("c", "acme", "x" * 900)
    assert jobs.get("c", BOB).state is JobState.SUCCEEDED
