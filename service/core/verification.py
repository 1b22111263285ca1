"""Verifications: the jobs in which a worker of its target finds out whether an artifact computes what it should.

An artifact is named by its content, and does not change; what is found out about it stands in the database.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from service.core.digest import Digest


class VerificationState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        return self in (VerificationState.PASSED, VerificationState.FAILED)


@dataclass(frozen=True)
class Verification:
    """A row of the table of verifications. Times are UTC.

    An artifact without one was verified by the host that built it.

    Attributes:
        pool: whose workers are to do it, beside a verification that counts for all; empty: it is the one that counts,
            for any worker of the target.
        worker: who has it, or had it last.
        result: `summary`, a sentence; `pool`, that of the worker; of one that passed also what was measured, as far as
            it was: `machine`, `threads`, `p50_s`, `p99_s`, `per_s` (calls one after the other) and `peak_percent`.
    """

    artifact: Digest
    target: str
    state: VerificationState
    created_at: datetime
    pool: str = ""
    attempt: int = 0
    worker: str | None = None
    result: Mapping[str, Any] = field(default_factory=dict)
    finished_at: datetime | None = None

    @property
    def summary(self) -> str:
        return str(self.result.get("summary", ""))
