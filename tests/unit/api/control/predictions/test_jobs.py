"""Jobs on a real table, whose predictions are answered by the test instead of a data plane."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from service.api.control.predictions import jobs as jobs_module
from service.api.control.predictions.jobs import Jobs, PatientPredictor
from service.api.control.predictions.predicting import Predicted, Predictions, TaskPredictor
from service.api.control.predictions.samples import Sample
from service.core.errors import DeadlinePassed, InvalidInput, OctetError, QueueFull, QuotaExceeded, Restarting
from service.core.models.job import JobOwner, JobState
from service.db import Database, PredictionJobStore
from tests.support.waiting import eventually_async

pytestmark = pytest.mark.anyio

OWNER = JobOwner("", "key")
Answer = OctetError | dict[str, Any]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def store(tmp_path: Path) -> PredictionJobStore:
    database = Database(f"sqlite:///{tmp_path / 'octet.sqlite3'}")
    database.migrate()
    return PredictionJobStore(database, kept_s=60, most_jobs=10, most_bytes=1000)


@pytest.fixture
def stopping() -> threading.Event:
    return threading.Event()


@pytest.fixture
def jobs(store: PredictionJobStore, stopping: threading.Event, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    monkeypatch.setattr(jobs_module, "_REPORT_EVERY_S", 0.0)
    monkeypatch.setattr(jobs_module, "_LOOK_S", 0.01)
    monkeypatch.setattr(jobs_module, "_LEAST_PAUSE_S", 0.001)
    return Jobs(store, cast(Predictions, None), stopping)


class Answered(PatientPredictor):
    """A predictor whose data plane gives these answers in turn, and none after the last one."""

    def __init__(self, answers: Sequence[Answer], **headers: str) -> None:
        super().__init__(cast(Predictions, None), "/v2/models/m", headers)
        self.answers = list(answers)


@pytest.fixture(autouse=True)
def data_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    async def predict(self: Answered, sample: Sample) -> Predicted:
        if not self.answers:
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, OctetError):
            raise answer
        return Predicted(answer)

    monkeypatch.setattr(TaskPredictor, "predict", predict)


async def test_predictions_that_are_refused_for_a_while_are_repeated(jobs: Jobs, store: PredictionJobStore) -> None:
    answers: list[Answer] = [QueueFull(), Restarting(), DeadlinePassed(), {"score": 1}, {"score": 2}]
    job = await jobs.start(OWNER, "m", Answered(answers), [Sample(text="a"), Sample(text="b")], True, 10)
    await eventually_async(lambda: store.get(job.id, OWNER).state.is_final)
    found = store.get(job.id, OWNER)
    assert (found.state, found.completed) == (JobState.SUCCEEDED, 2)
    assert found.result in ('{"results": [{"score": 1}, {"score": 2}]}', '{"results": [{"score": 2}, {"score": 1}]}')


@pytest.mark.parametrize(
    ("error", "headers"),
    [(InvalidInput("bad"), {}), (QuotaExceeded(), {}), (DeadlinePassed(), {"octet-timeout-ms": "100"})],
)
async def test_other_refusals_end_a_job(
    jobs: Jobs,
    store: PredictionJobStore,
    error: OctetError,
    headers: dict[str, str],
) -> None:
    predictor = Answered([error, {"score": 1}], **headers)
    job = await jobs.start(OWNER, "m", predictor, [Sample(text="a")], False, 10)
    await eventually_async(lambda: store.get(job.id, OWNER).state.is_final)
    assert store.get(job.id, OWNER).error == error.to_json()


async def test_a_job_fails_when_the_server_stops(
    jobs: Jobs, store: PredictionJobStore, stopping: threading.Event
) -> None:
    job = await jobs.start(OWNER, "m", Answered([]), [Sample(text="a")], False, 10)
    stopping.set()
    await eventually_async(lambda: store.get(job.id, OWNER).state.is_final)
    error = store.get(job.id, OWNER).error
    assert error is not None
    assert (error["code"], error["hint"]) == ("restarting", "send the request again")


async def test_a_job_that_another_replica_deletes_is_canceled(jobs: Jobs, store: PredictionJobStore) -> None:
    job = await jobs.start(OWNER, "m", Answered([]), [Sample(text="a")], False, 10)
    running = [task for task in asyncio.all_tasks() if "Jobs._run" in str(task.get_coro())]
    store.delete(job.id, OWNER)
    await eventually_async(lambda: all(task.cancelled() for task in running))
    assert running


async def test_two_jobs_of_a_caller_run_at_a_time(jobs: Jobs, store: PredictionJobStore) -> None:
    predictor = Answered([])
    for _ in range(2):
        await jobs.start(OWNER, "m", predictor, [Sample(text="a")], False, 10)
    waiting = Answered([{"score": 1}])
    third = await jobs.start(OWNER, "m", waiting, [Sample(text="a")], False, 10)
    other = JobOwner("", "other")
    fourth = await jobs.start(other, "m", waiting, [Sample(text="a")], False, 10)
    await eventually_async(lambda: store.get(fourth.id, other).state is JobState.SUCCEEDED)
    assert store.get(third.id, OWNER).state is JobState.RUNNING
