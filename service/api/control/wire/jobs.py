"""Schemas of prediction jobs."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from service.api.control.wire.base import Name, Wire
from service.api.control.wire.predictions import Prediction
from service.core.models.job import JobState


class JobError(Wire):
    """The reason why a job failed."""

    code: str = Field(description="A stable name for the type of error, as in problem documents.")
    message: str
    stage: str | None = None
    op: str | None = None
    tensor: str | None = None
    hint: str | None = None


class PredictionJob(Wire):
    """A prediction whose result the client fetches later."""

    id: str
    model: Name
    state: JobState
    samples: int = Field(description="The number of inputs.")
    completed: int = Field(description="The number of inputs that have a result; up to 2 s old.")
    created_at: datetime
    ended_at: datetime | None = None
    error: JobError | None = Field(None, description="If the job failed: the reason.")
    result: Prediction | None = Field(None, description="If the job succeeded: the result of the prediction.")


class PredictionJobs(Wire):
    jobs: list[PredictionJob] = Field(description="The newest first, without their results.")
