"""The messages that the data plane sends to the control plane.

The files `orders.cc` and `samples.cc` in `native/plane/control`, and `native/plane/net/tracing.cc`, write these
messages. The modules `orders` and `loads` create the messages in the other direction. The data plane runs the code of
models, so `tenant_planes.reports` checks the reports of a tenant's data plane before they are used.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

GRPC_CODES = (  # the index of each name is the code's number
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)

Phase = Literal["input", "infer", "output", "queue", "batch"]


class HistogramChange(TypedDict):
    """The counts of a histogram's buckets since the last report, and the sum of the observed values."""

    counts: list[int]
    sum: float


class ResponseCounts(TypedDict):
    """The durations of the responses with one status.

    Attributes:
        protocol: `rest` or `grpc`.
        code: an HTTP status, or the name of a gRPC code.
        total: the durations.
    """

    protocol: str
    code: str
    total: HistogramChange


class Changes(TypedDict):
    """The counts of one model since the last report."""

    answers: list[ResponseCounts]
    input: NotRequired[HistogramChange]
    infer: NotRequired[HistogramChange]
    output: NotRequired[HistogramChange]
    queue: NotRequired[HistogramChange]
    batch: NotRequired[HistogramChange]


class ModelReport(TypedDict):
    """The use of one loaded model. `admitted` and `queued` count requests since it was loaded."""

    key: int
    model: str
    version: str
    target: str
    admitted: int
    queued: int
    used_s: float
    changes: Changes


class ForwardCounts(TypedDict):
    """The requests for one model that were forwarded to one worker of a pool since the last report."""

    worker: str
    pool: str
    model: str
    forwarded: int
    retried: int
    failed: int
    hop: NotRequired[HistogramChange]


class GpuMemory(TypedDict):
    """A GPU, by its index, and its memory that models use."""

    card: int
    name: str
    memory_bytes: int
    used_bytes: int


class Report(TypedDict):
    """All counts since the last report, by model, reason of a refusal, and API key.

    `gather` is the number of the order that requested the report, or 0.
    """

    gather: int
    models: list[ModelReport]
    rejected: dict[str, int]
    not_allowed: dict[str, int]
    used: dict[str, int]
    forwards: NotRequired[list[ForwardCounts]]
    cards: NotRequired[list[GpuMemory]]


class Trace(TypedDict):
    """A request that was traced. Times are those of the monotonic clock; 0 or missing if a phase was not reached."""

    protocol: str
    traceparent: str
    tracestate: str
    request_id: str
    path: str
    route: str
    scheme: str
    code: str
    now_s: float
    model: NotRequired[str]
    version: NotRequired[str]
    target: NotRequired[str]
    began_s: NotRequired[float]
    arrived_s: NotRequired[float]
    prepared_s: NotRequired[float]
    ran_s: NotRequired[float]
    ended_s: NotRequired[float]
    submitted_s: NotRequired[float]
    taken_s: NotRequired[float]
    run_s: NotRequired[float]
    computed_s: NotRequired[float]
    call: NotRequired[int]
    requests: NotRequired[int]
    samples: NotRequired[int]
    key: NotRequired[int]


class Sample(TypedDict):
    """The inputs of a request that was answered. Their elements follow the message, in the signature's order.

    Attributes:
        key: the key of the model that answered the request.
        dropped: the number of requests that were chosen and not sent, since the last message of this type.
    """

    key: int
    dropped: int


class Question(TypedDict):
    """A question of the data plane, which the control plane answers with the same number.

    `kind` is `resolve`, `call` or `connect`, and determines which of the other members are set.
    """

    question: int
    kind: str
    model: NotRequired[str]
    version: NotRequired[str]
    path: NotRequired[str]
    caller: NotRequired[str]
    request_id: NotRequired[str]
    worker: NotRequired[str]
