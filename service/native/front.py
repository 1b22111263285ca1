"""The thread that answers predict requests on plain TCP: `src/front.h` for Python.

What it does not answer itself it hands over, as events: connections to go on with, and problems to compose answers to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tvm_ffi

from service.native.library import function
from service.native.model_queue import ModelQueue
from service.native.peer_budgets import PeerBudgets, PeerLimits, Seat


@dataclass(frozen=True)
class Limits:
    """On what a client may cost; times in seconds.

    Attributes:
        head_timeout_s: for the head of a request once begun, and for the first one.
        keep_alive_s: between two requests.
        stall_timeout_s: in which `min_body_bytes` of a body must come.
        lend_after_s: by then a body is there, or others may have its place.
        max_head_bytes: a longer head is read in Python; no more than 8 KB are looked at.
        longest_body_bytes: likewise.
        hosts: values of `Host` for which requests may be that are answered here; none for any.
    """

    head_timeout_s: float
    keep_alive_s: float
    stall_timeout_s: float
    min_body_bytes: int
    lend_after_s: float
    max_head_bytes: int
    longest_body_bytes: int
    hosts: Sequence[str] = ()


class Handover(NamedTuple):
    """A connection that Python is to go on with: it owns `seat` and `descriptor`, of which `received` was read."""

    descriptor: int
    received: bytes
    seat: Seat


class Problem(NamedTuple):
    """A request to which Python is to compose the answer (`Front.answer`), as no template of its entry fits. Its queue
    has released it.

    Attributes:
        exchange: its number.
        kind: `queue_full`, `late`, or `failed`, which has a `message` that begins with the error's kind and a colon.
        entry: the key of its entry.
        began_s: its head was there, by `time.monotonic`; `arrived_s`: so was its body, or as `began_s`.
        retry_after_s: when all who waited will have been served.
    """

    exchange: int
    kind: str
    entry: int
    message: str
    request_id: str
    began_s: float
    arrived_s: float
    retry_after_s: float


class Slot(bytes, Enum):
    """Where in the template of a refusal a value belongs; bytes that occur in neither a head nor JSON."""

    REQUEST_ID, RETRY_AFTER, CONTENT_LENGTH, DATE = b"\1", b"\2", b"\3", b"\4"


# What `Front.drain` says of each request that was answered or refused, or whose client left: of `code` 200, 429, 504 or
# 499. Times are those of `time.monotonic`, and 0 for what has not happened; `submitted_s` and what follows are those of
# `Stages` in job.h.
FIELDS = (
    *("entry", "code", "began_s", "arrived_s", "prepared_s", "ran_s", "ended_s"),
    *("submitted_s", "taken_s", "run_s", "computed_s", "call", "requests", "samples"),
)


@tvm_ffi.register_object("octet.Entry")
class Entry(tvm_ffi.Object):
    """A loaded model for the front: its queue and its request templates. From any thread."""

    if TYPE_CHECKING:

        def remember(self, *template: Any) -> None: ...
        def refuse_with(self, kind: str, status: int, answer: bytes) -> None:
            """`answer`: to requests that are refused for `kind` (see `Problem`), with a `Slot` for each value."""

    @staticmethod
    def of(queue: ModelQueue, key: int) -> Entry:
        """`key` is whatever the caller knows it by."""
        entry: Entry = function("entry")(queue, key)
        return entry

    def learn(
        self,
        inference_header: bytes,
        *,
        shapes: Sequence[Sequence[int]],
        dtypes: Sequence[npt.DTypeLike],
        order: Sequence[int],
        samples: int,
        level: int,
        timeout_s: float | None,
        document: bytes,
        outputs: Sequence[int],
        output_bytes: int,
    ) -> None:
        """Has requests with this `inference_header` answered without Python, from now on.

        Args:
            inference_header: the JSON before the tensors; empty for a body that is nothing but tensors.
            shapes: of the tensors that follow it; `dtypes` likewise.
            order: which of them is each input of the model.
            level: of the queue's priorities; 1 is served first.
            timeout_s: from the admission of a request to the beginning of its call; None for ever.
            document: the answer's JSON.
            outputs: of the model, those that follow it as binary data.
            output_bytes: of these together.

        Raises:
            ValueError: that makes no sense, or the inference header is longer than 4096 bytes.
        """
        until_s = float("inf") if timeout_s is None else timeout_s
        types = [tvm_ffi.dtype(np.dtype(each).name) for each in dtypes]
        template = inference_header, [list(each) for each in shapes], types, list(order), samples, level, until_s
        self.remember(*template, document, list(outputs), output_bytes)


class Answering(tvm_ffi.Object):
    """What every front has."""

    if TYPE_CHECKING:

        def routes(self, entries: dict[str, Entry]) -> None: ...
        def drain(self) -> tuple[Any, int]: ...

    def route(self, entries: Mapping[str, Entry]) -> None:
        """Who answers, by address, from now on. Nobody is admitted any more to a queue that is not among them."""
        self.routes(dict(entries))

    def records(self) -> tuple[npt.NDArray[np.float64], int]:
        """`[n, len(FIELDS)]`, those since the last call; and how many were lost, since nobody came for them."""
        table, lost = self.drain()
        return np.asarray(np.from_dlpack(table), np.float64), lost


@tvm_ffi.register_object("octet.Front")
class Front(Answering):
    """See `src/front.h`, whose methods it has. From any thread.

    `descriptor()` is readable while there are `events()`; `adopt(descriptor, received)` gives a connection back, where
    `takes(received)` says that the request that it begins would be answered; `counts()` are the connections and those
    of them with a request under way. `stop()` and `join()` before it is forgotten.
    """

    if TYPE_CHECKING:

        def descriptor(self) -> int: ...
        def events(self) -> Sequence[Sequence[Any]]: ...
        def answer(self, exchange: int, answer: bytes) -> None: ...
        def adopt(self, descriptor: int, received: bytes) -> None: ...
        def takes(self, received: bytes) -> bool: ...
        def counts(self) -> Sequence[int]: ...
        def stop(self) -> None: ...
        def join(self) -> None: ...

    @staticmethod
    def on(listener: int, limits: Limits, budgets: PeerBudgets | None = None) -> Front:
        """
        Args:
            listener: the descriptor of a socket that listens, does not block, and stays the caller's, who closes it
                after `join`; -1 where connections are only adopted.
            budgets: those of the process; None for its own.
        """
        bounds = limits.head_timeout_s, limits.keep_alive_s, limits.stall_timeout_s, limits.min_body_bytes
        front: Front = function("front")(
            listener,
            *bounds,
            limits.lend_after_s,
            limits.max_head_bytes,
            limits.longest_body_bytes,
            list(limits.hosts),
            budgets or PeerBudgets.of(PeerLimits()),
        )
        return front

    def happened(self) -> list[Handover | Problem]:
        """What Python is to do."""
        return [_EVENTS[kind](*rest) for kind, *rest in self.events()]


_EVENTS: Mapping[str, Any] = {"connection": Handover, "problem": Problem}
