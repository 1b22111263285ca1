"""The thread of gRPC's port: `src/grpc_front.h` for Python. What clients call comes as events; answers are commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import tvm_ffi

from service.native.front import Answering, Problem
from service.native.library import function
from service.native.peer_budgets import PeerBudgets

Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class GrpcLimits:
    """On what clients may cost; times in seconds.

    Attributes:
        head_timeout_s: for the first frame of a connection.
        stall_timeout_s: in which `min_body_bytes` of a message must come, or all of it; so must a call's first one,
            and so much of answers be taken.
        idle_timeout_s: without a call; then a connection is told to end.
        max_message_bytes: a longer one ends its call with RESOURCE_EXHAUSTED, before it is read.
    """

    head_timeout_s: float
    stall_timeout_s: float
    idle_timeout_s: float
    min_body_bytes: int
    max_message_bytes: int


class CallBegan(NamedTuple):
    """`deadline_s` is by `time.monotonic`; `metadata` has the values of `-bin` in base64, as they came."""

    call: int
    path: str
    deadline_s: float | None
    metadata: Pairs


class MessageCame(NamedTuple):
    """A message of a call. No other comes, soon, before `GrpcFront.resume`."""

    call: int
    message: bytes
    is_compressed: bool


class HalfClosed(NamedTuple):
    """No more messages will come."""

    call: int


class Canceled(NamedTuple):
    """The call is over by its client's will, its deadline, or with its connection. Nothing more is said of it."""

    call: int


@tvm_ffi.register_object("octet.GrpcFront")
class GrpcFront(Answering):
    """See `src/grpc_front.h`, whose methods it has. From any thread.

    `descriptor()` is readable while something has `happened()`. Commands take effect in their order, with `flush()`; of
    a call that is over they have none, but for `release()`: a call counts among those of its client until that, or
    until it was finished. `stop()` and `join()` before it is forgotten.
    """

    if TYPE_CHECKING:

        def descriptor(self) -> int: ...
        def events(self) -> Sequence[Sequence[Any]]: ...
        def send_metadata(self, call: int, lines: bytes) -> None: ...
        def send_message(self, call: int, message: bytes, is_compressed: bool) -> None: ...
        def finish(self, call: int, status: int, details: bytes, lines: bytes) -> None: ...
        def resume(self, call: int) -> None: ...
        def release(self, call: int) -> None: ...
        def flush(self) -> None: ...
        def connections(self) -> int: ...
        def stop(self) -> None: ...
        def join(self) -> None: ...

    @staticmethod
    def on(listener: int, limits: GrpcLimits, budgets: PeerBudgets) -> GrpcFront:
        """
        Args:
            listener: the descriptor of a socket that listens and does not block. `stop` shuts it down; it is closed by
                the caller, after `join`.
        """
        times = limits.head_timeout_s, limits.stall_timeout_s, limits.idle_timeout_s
        front: GrpcFront = function("grpc_front")(
            listener, *times, limits.min_body_bytes, limits.max_message_bytes, budgets
        )
        return front

    def happened(self) -> list[CallBegan | MessageCame | HalfClosed | Canceled | Problem]:
        """What Python is to do. A `Problem` is a call that it did not hear of before, and is to `finish`."""
        return [_EVENTS[kind](*rest) for kind, *rest in self.events()]


def lines_of(metadata: Pairs) -> bytes:
    """As commands take it. The value of a `-bin` is base64 already.

    Raises:
        ValueError: a name or a value holds the end of a line.
    """
    if any("\n" in name or "\n" in value for name, value in metadata):
        raise ValueError("metadata is one line each")
    return "".join(f"{name}\n{value}\n" for name, value in metadata).encode()


def _began(call: int, path: bytes, deadline_s: float, lines: bytes) -> CallBegan:
    texts = bytes(lines).decode(errors="replace").split("\n")
    pairs = list(zip(texts[::2], texts[1::2], strict=False))  # what follows the last line is no name
    return CallBegan(call, bytes(path).decode(errors="replace"), None if deadline_s == inf else deadline_s, pairs)


_EVENTS: Mapping[str, Any] = {
    "call": _began,
    "message": MessageCame,
    "half_close": HalfClosed,
    "cancel": Canceled,
    "problem": Problem,
}
