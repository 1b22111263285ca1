"""Runs prediction jobs. Their states and results are in the database, so that every replica can return them.

The inputs are in the memory of the process that received them. If this process ends, its jobs fail, and their error
says that the request has to be sent again. A job outlives a restart of the data plane or of a worker: predictions that
are refused for a while are repeated.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Sequence
from time import monotonic
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

from service.api.control.predictions.predicting import Predictions, TaskPredictor
from service.api.control.predictions.samples import Sample
from service.api.statuses import may_be_retried
from service.core.errors import DeadlinePassed, OctetError, QuotaExceeded, Restarting
from service.core.models.job import JobOwner, PredictionJob
from service.core.system.outage import log_trouble
from service.db import PredictionJobStore

_logger = logging.getLogger(__name__)

PARALLEL = 4  # the number of predictions that one job sends at a time
_JOBS_AT_A_TIME = 2  # of one caller; its other jobs wait
_PATIENCE_S = 600.0  # how long the predictions of a job are repeated while none succeeds
_LEAST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_REPORT_EVERY_S, _LOOK_S = 2.0, 0.25
_STOPPED = Restarting("the server stopped before the job had ended", hint="send the request again")
_BROKEN = {"code": "internal_error", "message": "The server failed unexpectedly.", "hint": "see the server's log"}


class PatientPredictor(TaskPredictor):
    """Sends the samples of a job. Repeats predictions that are refused because of a full queue or of a restart.

    Attributes:
        completed: the number of samples that have a result.
    """

    completed = 0
    _moved_s: float | None = None

    async def predict(self, sample: Sample) -> Any:
        if self._moved_s is None:
            self._moved_s = monotonic()
        while True:
            try:
                result = await super().predict(sample)
            except OctetError as error:
                if not self._is_temporary(error) or monotonic() > self._moved_s + _PATIENCE_S:
                    raise
                pause_s = max(_LEAST_PAUSE_S, error.retry_after_s or 0.0)
                await asyncio.sleep(min(pause_s, _LONGEST_PAUSE_S))
            else:
                self.completed += 1
                self._moved_s = monotonic()
                return result

    def _is_temporary(self, error: OctetError) -> bool:
        if isinstance(error, QuotaExceeded):
            return False  # it would take until the next day
        return may_be_retried(error) or (isinstance(error, DeadlinePassed) and not self.has_deadline)


class Jobs:
    """The jobs that this process runs. For one event loop.

    Attributes:
        predictions: the connections over which jobs send predictions. Other requests have connections of their own, so
            that they do not wait for jobs.
    """

    def __init__(self, store: PredictionJobStore, predictions: Predictions, stopping: threading.Event) -> None:
        """
        Args:
            stopping: set when the process is about to end.
        """
        self._store, self.predictions, self._stopping = store, predictions, stopping
        self._running: dict[str, tuple[asyncio.Task[None], PatientPredictor]] = {}
        self._turns: WeakValueDictionary[JobOwner, asyncio.Semaphore] = WeakValueDictionary()
        self._reporting: asyncio.Task[None] | None = None

    async def start(
        self,
        owner: JobOwner,
        model: str,
        predictor: PatientPredictor,
        samples: Sequence[Sample],
        is_list: bool,
        size_bytes: int,
    ) -> PredictionJob:
        """Starts a job.

        Args:
            model: the full name of the model.
            is_list: true if the result is a list, even of a single sample.
            size_bytes: the size of the request's body.

        Raises:
            QueueFull: the caller's tenant has too many jobs, or they have too many bytes.
        """
        id = uuid4().hex
        job = await asyncio.to_thread(self._store.add, id, owner, model, len(samples), size_bytes)
        task = asyncio.create_task(self._run(id, owner, predictor, samples, is_list))
        self._running[id] = task, predictor
        if self._reporting is None or self._reporting.done():
            self._reporting = asyncio.create_task(self._report())
        return job

    async def delete(self, id: str, owner: JobOwner) -> None:
        """Deletes a job, and cancels it if it is running. Raises `NotFound` as the store does."""
        await asyncio.to_thread(self._store.delete, id, owner)
        self._cancel(id)  # a job of another process ends at its next report

    async def _run(
        self, id: str, owner: JobOwner, predictor: PatientPredictor, samples: Sequence[Sample], is_list: bool
    ) -> None:
        turn = self._turns.setdefault(owner, asyncio.Semaphore(_JOBS_AT_A_TIME))
        try:
            async with turn:
                results = [each.to_json() for each in await predictor.predict_all(samples)]
                text = json.dumps({"results": results} if is_list else results[0], ensure_ascii=False)
            await asyncio.to_thread(self._store.succeed, id, owner.tenant, text)
        except OctetError as error:
            await asyncio.to_thread(self._store.fail, id, error.to_json())
        except Exception:
            _logger.exception("the prediction job %s failed", id)
            await asyncio.to_thread(self._store.fail, id, _BROKEN)
        finally:
            self._running.pop(id, None)

    async def _report(self) -> None:
        """Reports the running jobs regularly, and cancels those that have been deleted. Ends with the last job."""
        reported_s = monotonic()
        while self._running:
            await asyncio.sleep(_LOOK_S)
            if self._stopping.is_set():
                await self._stop()
                continue
            if monotonic() < reported_s + _REPORT_EVERY_S:
                continue
            reported_s = monotonic()
            completed = {id: predictor.completed for id, (_, predictor) in self._running.items()}
            try:
                wanted = await asyncio.to_thread(self._store.report, completed)
            except Exception as error:  # the database is unreachable, perhaps only for a while
                log_trouble(_logger, error, "cannot report the running prediction jobs")
                continue
            for id in completed.keys() - wanted:
                self._cancel(id)

    async def _stop(self) -> None:
        for id in list(self._running):
            self._cancel(id)
            await asyncio.to_thread(self._store.fail, id, _STOPPED.to_json())

    def _cancel(self, id: str) -> None:
        if id in self._running:
            task, _ = self._running.pop(id)
            task.cancel()
