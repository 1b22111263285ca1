"""Verifications: jobs in which a worker checks, on a machine of the target, that an artifact computes correctly.

An artifact is named by its content and never changes. The results of its checks therefore stay valid, and are stored in
the database.
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
    """A row of the verifications table. Times are UTC.

    An artifact without a verification was verified by the machine that built it.

    Attributes:
        pool: empty for the verification that decides whether the artifact is served, which any worker of the target may
            do. Otherwise this is an additional verification, for workers of this pool alone.
        worker: the worker that is doing the verification, or did it last.
        result: `summary`, a sentence, and `pool`, the worker's pool. If it passed, the result also contains what was
            measured: `machine`, `threads`, `p50_s`, `p99_s`, `per_s` (calls one after the other) and `peak_percent`.
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
