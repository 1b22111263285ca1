"""Request statistics of each model version since it was loaded: the protocol's statistics extension.

Beside the histograms of `/metrics`, because clients that measure (perf_analyzer) take differences of these sums.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Members = dict[str, Any]
Numbers = npt.NDArray[np.float64]

# Of a request: waiting for an execution thread; reading it; the call that computed it; writing its answer.
STAGES = ("queue", "compute_input", "compute_infer", "compute_output")


class Duration:
    """A count of events and their total duration. For the event loop's thread."""

    __slots__ = ("_count", "_ns")

    def __init__(self) -> None:
        self._count = self._ns = 0

    def add(self, duration_s: float) -> None:
        self._count += 1
        self._ns += int(1e9 * duration_s)

    def add_all(self, durations_s: Numbers) -> None:
        self._count += len(durations_s)
        self._ns += int((1e9 * durations_s).astype(np.int64).sum())  # each as `add` has it

    @property
    def count(self) -> int:
        return self._count

    def to_json(self) -> Members:
        return {"count": self._count, "ns": self._ns}


class ModelStatistics:
    """Statistics of one model version.

    Attributes:
        executions: of the model, by how many samples it computed at once.
    """

    def __init__(self) -> None:
        self.executions: defaultdict[int, Duration] = defaultdict(Duration)
        self._success, self._fail = Duration(), Duration()
        self._stages = {stage: Duration() for stage in STAGES}
        self._last_inference_ms = 0

    def succeeded(self, duration_s: float, stages_s: Sequence[float]) -> None:
        """A request was answered.

        Its stages are counted with it and of no others, as Triton has it: perf_analyzer ends where, at any moment,
        the counts of two differ. A request that was computed in a batch took as long as the whole batch.

        Args:
            duration_s: since the arrival of its last byte.
            stages_s: as in `STAGES`.
        """
        self._success.add(duration_s)
        for duration, stage_s in zip(self._stages.values(), stages_s, strict=True):
            duration.add(stage_s)
        self._last_inference_ms = time.time_ns() // 1_000_000

    def all_succeeded(self, durations_s: Numbers, stages_s: Sequence[Numbers]) -> None:
        """As `succeeded` for each of `[n]`."""
        self._success.add_all(durations_s)
        for duration, stage_s in zip(self._stages.values(), stages_s, strict=True):
            duration.add_all(stage_s)
        self._last_inference_ms = time.time_ns() // 1_000_000

    def all_failed(self, durations_s: Numbers) -> None:
        """As `failed` for each of `[n]`."""
        self._fail.add_all(durations_s)
        self._last_inference_ms = time.time_ns() // 1_000_000

    def failed(self, duration_s: float) -> None:
        """A request was refused, or failed."""
        self._fail.add(duration_s)
        self._last_inference_ms = time.time_ns() // 1_000_000

    def to_json(self) -> Members:
        """In the extension's form, but for the name and the version."""
        executions = {size: duration.to_json() for size, duration in sorted(self.executions.copy().items())}
        never = Duration().to_json()
        return {
            "last_inference": self._last_inference_ms,
            "inference_count": sum(size * each["count"] for size, each in executions.items()),
            "execution_count": sum(each["count"] for each in executions.values()),
            "inference_stats": {
                "success": self._success.to_json(),
                "fail": self._fail.to_json(),
                **{stage: duration.to_json() for stage, duration in self._stages.items()},
                "cache_hit": never,  # there is no cache of answers; perf_analyzer reads it
                "cache_miss": never,
            },
            # Reading and writing is done by request, whatever the model then computes at once.
            "batch_stats": [
                {"batch_size": size, "compute_input": never, "compute_infer": each, "compute_output": never}
                for size, each in executions.items()
            ],
        }


class Statistics:
    """Statistics of the model versions that are loaded here, or were recently; `versions` decides for how long."""

    def __init__(self) -> None:
        self._models: dict[tuple[str, int], ModelStatistics] = {}

    def of(self, model: str, version: int) -> ModelStatistics:
        """To count into."""
        return self._models.setdefault((model, version), ModelStatistics())

    def told(self, model: str, version: int) -> ModelStatistics:
        """To read: of one that nothing was counted for, too."""
        return self._models.get((model, version)) or ModelStatistics()

    def drop(self, model: str, version: int) -> None:
        """Discards the counters. Requests under way count into discarded ones."""
        self._models.pop((model, version), None)

    def known(self) -> set[tuple[str, int]]:
        """The model versions that something was counted for."""
        return set(self._models)
