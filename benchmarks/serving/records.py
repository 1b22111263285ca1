"""Records of a run (`lines`): first the run itself, once, then the measurements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, get_args

from benchmarks import lines
from benchmarks.link import Waiting

PART = "serving"  # of the folder of results: what its files are named with


@dataclass(frozen=True)
class Run:
    """The machine and the settings. Every other figure of the file is of this pinning and numerics mode.

    Attributes:
        generator: how it waits for answers (`link.Waiting`).
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
    """One of those who answer one request after the other: the median of each round.

    Attributes:
        client: how it waits for its answer (`link.Waiting`); empty where there is none.
        busy_ms: of the floor, how long it computes nothing.
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
    """A way to a model, `connections` at a time, each of which asks again when it is answered.

    Attributes:
        server_us: processor time of all the server's processes for an answer.
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
    """A contestant under load, once.

    Attributes:
        arrivals: `closed`, `open`, or `calls` for the bare call.
        rate: arrivals a second of the open loop; 0 otherwise.
        connections: of the closed loop.
        per_s: right answers a second.
        statuses: answers by HTTP status.
        wrong: answers with another body than the first one.
        latencies_ms: of each 200, of the open loop only; counted from when the request was due.
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
    """
    Attributes:
        factor: times the capacity, asked of the generator.
        unsent: what the generator was too slow to send of that: a core has its limit, too.
        capacity_per_s: of a closed loop just before.
        goodput_per_s: right answers that came within the overload, a second of it.
        refused_p99_ms: of the 429s, from when the request was due.
        recovery_s: from the end of the overload to the first of ten probes in a row that are answered in time.
        rss_mib: before, the most of it meanwhile, and after the recovery.
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
        """Times the capacity, as sent."""
        return self.factor - self.unsent / (self.seconds * self.capacity_per_s)


@dataclass(frozen=True)
class Fairness:
    """A light model at a constant rate, alone and beside clients of a heavy one on the same server.

    Attributes:
        cores: of the server.
        rate: of the light one.
        connections: of the heavy one, closed loop.
        call_ms: the 99th percentile of the heavy one's latency, asked by one client alone.
        alone_ms, beside_ms: the light one's latencies.
        heavy_alone_per_s, heavy_beside_per_s: answers of the heavy one.
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
class Interference:
    """Predictions one after the other, quiet and beside the first build of a model on the same server.

    Attributes:
        cores: of the server.
        build_s: from the push to the end of the build.
        quiet_ms, beside_ms: the latency of each.
    """

    kind: ClassVar[str] = "interference"
    model: str
    round: int
    cores: int
    build_s: float
    quiet_ms: list[float]
    beside_ms: list[float]
    other_cpus: float


@dataclass(frozen=True)
class Footprint:
    """A server that was started, has answered once, and was left alone for a while.

    Attributes:
        title: its command.
        answered_s: from the command to the first right prediction of the model, asked for without a pause.
        pss_mib: at rest, by process: its own memory, and its share of what it has in common with others.
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
    """
    Attributes:
        rate: binary predictions a second.
        predictions: answers to them by status, of all models.
        others: by who else asked, what came of it, and how often.
        problems: answers that are not what they have to be, 5xx and wrong ones among them.
        problem_kinds: what they were, each once, up to fifty.
        restarts: of the server's processes.
        rss_mib: resident sets by process, at equal distances, `every_s`.
        mib_per_min: by process, the slope of its second half and the ends of its 95 % confidence interval.
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
    """A part that did not come to its end."""

    kind: ClassVar[str] = "failure"
    part: str
    error: str


Record = Run | Overhead | Road | Turn | Entry | Overload | Fairness | Interference | Footprint | Soak | Failure
_KINDS = {kind.kind: kind for kind in get_args(Record)}


def read(path: Path) -> Iterator[Record]:
    """Raises KeyError for a line of a kind that is none of these."""
    for kind, fields in lines.read(path):
        yield _KINDS[kind](**fields)
