"""Prediction jobs: predictions whose result the client fetches later."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class JobState(StrEnum):
    RUNNING = "running"  # also while its first prediction waits
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        return self is not JobState.RUNNING


@dataclass(frozen=True)
class JobOwner:
    """The caller who started a job. Only this caller sees the job.

    Attributes:
        tenant: the tenant of the key; empty for the operator, or if no keys are used. Limits count its jobs together.
        key: the id of the key; empty if no keys are used.
    """

    tenant: str
    key: str


@dataclass(frozen=True)
class PredictionJob:
    """A prediction job.

    Attributes:
        model: the full name of the model.
        samples, completed: the number of predictions of the job, and of those that have a result.
        error: the reason of a failure, as `OctetError.to_json` returns it.
        result: the result as JSON text, once the job has succeeded; None if it was not read.
    """

    id: str
    model: str
    state: JobState
    samples: int
    completed: int
    created_at: datetime
    ended_at: datetime | None = None
    error: dict[str, Any] | None = None
    result: str | None = None
