"""What was asked of each model version since the process started: the protocol's statistics extension.

Beside the histograms of `/metrics`, because clients that measure (perf_analyzer) take differences of these sums.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

Members = dict[str, Any]


class Duration:
    """How often something took place, and how long all of it took. For the event loop's thread."""

    __slots__ = ("_count", "_ns")

    def __init__(self) -> None:
        self._count = self._ns = 0

    def add(self, duration_s: float) -> None:
        self._count += 1
        self._ns += int(1e9 * duration_s)

    @property
    def count(self) -> int:
        return self._count

    def to_json(self) -> Members:
        return {"count": self._count, "ns": self._ns}


class ModelStatistics:
    """Of one model version.

    Attributes:
        success: requests that were answered, from the arrival of their last byte.
        fail: requests that were refused or failed.
        queue: requests that waited for an execution thread.
        compute_input, compute_output: reading requests, and writing their answers.
        compute_infer: executions of the model, by how many samples it computed at once.
    """

    def __init__(self) -> None:
        self.success, self.fail, self.queue = Duration(), Duration(), Duration()
        self.compute_input, self.compute_output = Duration(), Duration()
        self.compute_infer: defaultdict[int, Duration] = defaultdict(Duration)
        self._last_inference_ms = 0

    def answered(self, succeeded: bool, duration_s: float) -> None:
        """A request is over."""
        (self.success if succeeded else self.fail).add(duration_s)
        self._last_inference_ms = time.time_ns() // 1_000_000

    def to_json(self) -> Members:
        """In the extension's form, but for the name and the version."""
        executions = {size: duration.to_json() for size, duration in sorted(self.compute_infer.copy().items())}
        infer = {key: sum(each[key] for each in executions.values()) for key in ("count", "ns")}
        never = Duration().to_json()
        return {
            "last_inference": self._last_inference_ms,
            "inference_count": sum(size * each["count"] for size, each in executions.items()),
            "execution_count": infer["count"],
            "inference_stats": {
                "success": self.success.to_json(),
                "fail": self.fail.to_json(),
                "queue": self.queue.to_json(),
                "compute_input": self.compute_input.to_json(),
                "compute_infer": infer,
                "compute_output": self.compute_output.to_json(),
                "cache_hit": never,  # there is no cache of answers; perf_analyzer wants to read it
                "cache_miss": never,
            },
            # Reading and writing is done by request, whatever the model then computes at once.
            "batch_stats": [
                {"batch_size": size, "compute_input": never, "compute_infer": each, "compute_output": never}
                for size, each in executions.items()
            ],
        }


class Statistics:
    """Of every model version that was ever loaded here. It outlives their unloading."""

    def __init__(self) -> None:
        self._models: dict[tuple[str, int], ModelStatistics] = {}

    def of(self, model: str, version: int) -> ModelStatistics:
        return self._models.setdefault((model, version), ModelStatistics())

    def known(self) -> set[tuple[str, int]]:
        """The model versions that something was counted for."""
        return set(self._models)
