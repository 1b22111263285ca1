"""Records of a run (`harness.records`): first the run itself, once, then the measurements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, get_args

from benchmarks.harness.link import Waiting
from benchmarks.harness.records import read as read_records

PART = "serving"  # the part's name in the names of result files


@dataclass(frozen=True)
class Run:
    """The machine and the settings. All figures of the file were measured with this pinning and numerics mode.

    Attributes:
        generator: how the generator waits for responses (`link.Waiting`).
    """

    kind: ClassVar[str] = "run"
    started_at: str
    cpu: str
    target: str
    server_core: int
    client_core: int
    numerics: str
    rounds: int
    seconds: float
    share: float
    versions: dict[str, str]
    note: str = ""
    generator: str = Waiting.BLOCKING


@dataclass(frozen=True)
class Overhead:
    """The times of a contestant that answers one request after the other: the median of each round.

    Attributes:
        client: how the client waits for its response (`link.Waiting`); empty without a client.
        busy_ms: for the contestant `floor`, the time for which it computes before it responds.
    """

    kind: ClassVar[str] = "overhead"
    model: str
    contender: str
    title: str
    encoding: str
    request_bytes: int
    medians_ms: list[float]
    calls: int
    other_cpus: float
    client: str = Waiting.BLOCKING
    busy_ms: float = 0.0


@dataclass(frozen=True)
class Road:
    """A way to send predictions to a model, over `connections` connections, each of which sends its next request when
    it is answered.

    Attributes:
        server_us: processor time of all the server's processes per response.
    """

    kind: ClassVar[str] = "road"
    model: str
    title: str
    round: int
    connections: int
    request_bytes: int
    per_s: float
    p50_ms: float
    p99_ms: float
    server_us: float
    other_cpus: float


@dataclass(frozen=True)
class Turn:
    """One turn of a contestant under load.

    Attributes:
        arrivals: `closed`, `open`, or `calls` for the bare call.
        rate: arrivals per second of the open loop; 0 otherwise.
        connections: number of connections of the closed loop.
        per_s: correct responses per second.
        statuses: responses by HTTP status.
        wrong: responses whose body differs from the first one's.
        latencies_ms: latency of each 200, in the open loop only; counted from when the request was due.
    """

    kind: ClassVar[str] = "turn"
    model: str
    contestant: str
    round: int
    arrivals: str
    rate: float
    connections: int
    encoding: str
    elapsed_s: float
    per_s: float
    p50_ms: float
    p99_ms: float
    statuses: dict[str, int]
    wrong: int
    other_cpus: float
    latencies_ms: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Entry:
    """A contestant that could be loaded, with its memory after its turns; or `error`."""

    kind: ClassVar[str] = "contestant"
    model: str
    contestant: str
    title: str
    rss_mib: float = 0.0
    pss_mib: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class Overload:
    """The results of an overload.

    Attributes:
        factor: requested load, in multiples of the capacity.
        unsent: number of these requests that the generator was too slow to send.
        capacity_per_s: rate of a closed loop just before.
        goodput_per_s: correct responses within the overload, per second.
        refused_p99_ms: 99th percentile of the 429s, from when the request was due.
        recovery_s: time from the end of the overload to the first of ten successive probes that are answered in
            time.
        rss_mib: memory before, the maximum meanwhile, and after the recovery.
    """

    kind: ClassVar[str] = "overload"
    model: str
    encoding: str
    factor: float
    seconds: float
    capacity_per_s: float
    goodput_per_s: float
    statuses: dict[str, int]
    wrong: int
    served_p50_ms: float
    served_p99_ms: float
    refused_p50_ms: float
    refused_p99_ms: float
    recovery_s: float
    rss_mib: list[float]
    other_cpus: float
    unsent: int = 0

    @property
    def sent_factor(self) -> float:
        """Returns the sent load in multiples of the capacity."""
        return self.factor - self.unsent / (self.seconds * self.capacity_per_s)


@dataclass(frozen=True)
class Fairness:
    """The latency of a light model at a constant rate, without and with clients of a heavy model on the same server.

    Attributes:
        cores: the server's cores.
        rate: requests per second to the light model.
        connections: number of clients of the heavy model. Each sends its next request when the last one is answered.
        call_ms: the 99th percentile of the heavy model's latency, with one client alone.
        alone_ms, beside_ms: the light model's latencies, alone and while the heavy model has clients.
        heavy_alone_per_s, heavy_beside_per_s: responses of the heavy model per second, without and with the client of
            the light model.
    """

    kind: ClassVar[str] = "fairness"
    light: str
    heavy: str
    cores: int
    rate: float
    connections: int
    seconds: float
    call_ms: float
    alone_ms: list[float]
    beside_ms: list[float]
    heavy_alone_per_s: float
    heavy_beside_per_s: float
    statuses: dict[str, int]
    wrong: int
    other_cpus: float


@dataclass(frozen=True)
class Footprint:
    """A server that was started, has answered once, and was then idle for a while.

    Attributes:
        title: the server's command.
        answered_s: the time from the command to the first correct prediction; predictions were requested without
            pauses.
        pss_mib: proportional set size of each process when the server is idle: its own memory, and its part of memory
            that it shares with others.
    """

    kind: ClassVar[str] = "footprint"
    model: str
    title: str
    round: int
    answered_s: float
    pss_mib: dict[str, float]
    other_cpus: float


@dataclass(frozen=True)
class Soak:
    """The results of a soak.

    Attributes:
        rate: binary predictions per second.
        predictions: the number of responses to predictions of all models, by status.
        others: for each other client, its outcomes and how often each occurred.
        problems: number of unexpected responses, including 5xx and wrong ones.
        problem_kinds: the messages of the unexpected responses, each once, up to fifty.
        restarts: number of restarts of the server's processes.
        rss_mib: for each process, its resident set, sampled every `every_s`.
        mib_per_min: for each process, the growth of its resident set in the second half of the soak, and the ends of
            the 95 % confidence interval of this growth.
    """

    kind: ClassVar[str] = "soak"
    models: list[str]
    minutes: float
    rate: float
    predictions: dict[str, int]
    wrong: int
    others: dict[str, dict[str, int]]
    unplanned_5xx: int
    problems: int
    problem_kinds: list[str]
    restarts: int
    every_s: float
    rss_mib: dict[str, list[float]]
    mib_per_min: dict[str, list[float]]
    other_cpus: float


@dataclass(frozen=True)
class Failure:
    """A part that did not finish."""

    kind: ClassVar[str] = "failure"
    part: str
    error: str


Record = Run | Overhead | Road | Turn | Entry | Overload | Fairness | Footprint | Soak | Failure
_TYPES: dict[str, type[Record]] = {each.kind: each for each in get_args(Record)}


def read(path: Path) -> Iterator[Record]:
    """Reads the records. Raises KeyError for a line of an unknown type."""
    return read_records(path, _TYPES)
