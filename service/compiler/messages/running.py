"""Messages to and from the child processes of `octet run`, `octet bench` and `octet explain`
(`children.running_roles`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.compiler.messages.checking import ArtifactFiles, ProfileResult
from service.compiler.messages.message import Count, Message, Seconds
from service.compiler.messages.role import Role


@dataclass(frozen=True)
class RunRequest(ArtifactFiles):
    """A request to run an artifact once.

    Attributes:
        tensors: the descriptor of the shared memory that contains inputs and outputs (`runtime.shared.SharedTensors`).
        length: the length of the inputs before they were padded; 0 if they were not.
    """

    tensors: int
    threads: int
    length: int = 0


@dataclass(frozen=True)
class RunResult(Message):
    """The duration of the call."""

    seconds: Seconds


@dataclass(frozen=True)
class BenchRequest(ArtifactFiles):
    """A request to measure the latency of an artifact.

    Attributes:
        seconds: the approximate duration of the measurement.
    """

    threads: int
    seconds: float


@dataclass(frozen=True)
class Histogram(Message):
    """A histogram of latencies: the number of calls whose duration is between each two adjacent edges."""

    edges_s: tuple[Seconds, ...]
    calls: tuple[Count, ...]


@dataclass(frozen=True)
class BenchResult(Message):
    """The JSON form of `runtime.latency.Latency`, and the cores that were used."""

    threads: Count
    batch: Count
    calls: Count
    cores: tuple[Count, ...]
    per_s: Seconds
    min_s: Seconds
    p50_s: Seconds
    p90_s: Seconds
    p99_s: Seconds
    max_s: Seconds
    histogram: Histogram


@dataclass(frozen=True)
class ExplainRequest(BenchRequest):
    """A request to time the calls of an artifact's kernels.

    Attributes:
        peak: the description of the peak loop in the coverage report, or None if the artifact has none.
    """

    peak: Mapping[str, Any] | None


@dataclass(frozen=True)
class CountRequest(ArtifactFiles):
    """A request to run an artifact that counts values.

    Attributes:
        samples: the elements of the inputs of each call, in the signature's order, in base64. They are part of the
            message, so that they are never in a file.
        counted: the number of the last outputs, which contain counts (`core.models.ranges`).
    """

    threads: int
    samples: tuple[str, ...]
    counted: int


@dataclass(frozen=True)
class CountResult(Message):
    """The counts of all calls together, for each output that contains counts."""

    counts: tuple[tuple[int, ...], ...]


RUN = Role("run", RunRequest, RunResult)
BENCH = Role("bench", BenchRequest, BenchResult)
COUNT = Role("count", CountRequest, CountResult)
EXPLAIN = Role("explain", ExplainRequest, ProfileResult)
