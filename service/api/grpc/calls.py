"""Calls that the native front passes on: for servicers, each is what `grpc.aio.ServicerContext` says.

Of that it has what this application's servicers use.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections import deque
from collections.abc import AsyncIterator, Sequence
from time import monotonic
from typing import Any, NoReturn

from grpc import Compression, StatusCode

from service.api.oip.coding import WINDOW_BITS, compressed, inflated
from service.core.errors import InvalidInput, TooLarge
from service.native import CallBegan, GrpcFront, lines_of

Pairs = Sequence[tuple[str, str]]

_CODINGS = {Compression.Gzip: "gzip", Compression.Deflate: "deflate"}
_END = None  # behind the last message


class Aborted(Exception):
    """A servicer has ended its call with an error."""

    def __init__(self, code: StatusCode, details: str, trailers: Pairs) -> None:
        super().__init__(details)
        self.code, self.details, self.trailers = code, details, trailers


class Call:
    """For the event loop's thread."""

    def __init__(self, front: GrpcFront, began: CallBegan, max_message_bytes: int) -> None:
        self.path = began.path
        self._front, self._id, self._deadline_s = front, began.call, began.deadline_s
        self._max_message_bytes = max_message_bytes
        self._metadata = tuple((name, _value(name, text)) for name, text in began.metadata)
        self._came: deque[tuple[bytes, bool] | None] = deque()
        self._something_came = asyncio.Event()
        self._coding, self._is_next_compressed = "", True
        self._trailers: Pairs = ()
        self.is_finished = False

    def message_came(self, message: bytes, is_compressed: bool) -> None:
        self._came.append((message, is_compressed))
        self._something_came.set()

    def half_closed(self) -> None:
        self._came.append(_END)
        self._something_came.set()

    async def messages(self) -> AsyncIterator[bytes]:
        """The client's messages. A slow consumer of this iterator exerts backpressure on the client.

        Raises:
            Aborted: a message cannot be inflated.
        """
        while (came := await self._next()) is not _END:
            message, is_compressed = came
            yield await self._inflated(message) if is_compressed else message
            self._front.resume(self._id)
            self._front.flush()

    async def only_message(self) -> bytes:
        """Raises `Aborted` where there are none, or more."""
        came = await self._next()
        if came is _END or await self._next() is not _END:
            raise Aborted(StatusCode.UNIMPLEMENTED, "the method takes one message", ())
        message, is_compressed = came
        return await self._inflated(message) if is_compressed else message

    async def send(self, message: bytes) -> None:
        is_compressed, self._is_next_compressed = bool(self._coding) and self._is_next_compressed, True
        if is_compressed:
            message = await asyncio.to_thread(compressed, message, self._coding)
        self._front.send_message(self._id, message, is_compressed)

    def flush(self) -> None:
        self._front.flush()

    def finish(self, code: StatusCode = StatusCode.OK, details: str = "", trailers: Pairs | None = None) -> None:
        """Ends the call, with the trailers that were set where no others are given."""
        lines = lines_of(self._trailers if trailers is None else trailers)
        self.is_finished = True
        self._front.finish(self._id, code.value[0], details.encode(), lines)
        self._front.flush()

    def release(self) -> None:
        """Nobody works on the call any more, which was canceled."""
        self._front.release(self._id)
        self._front.flush()

    # As `grpc.aio.ServicerContext`:

    def invocation_metadata(self) -> tuple[tuple[str, Any], ...]:
        return self._metadata

    def time_remaining(self) -> float | None:
        return None if self._deadline_s is None else max(0.0, self._deadline_s - monotonic())

    def set_trailing_metadata(self, metadata: Pairs) -> None:
        self._trailers = metadata

    def set_compression(self, compression: Compression) -> None:
        self._coding = _CODINGS[compression]

    def disable_next_message_compression(self) -> None:
        self._is_next_compressed = False

    async def send_initial_metadata(self, metadata: Pairs) -> None:
        coding = [("grpc-encoding", self._coding)] if self._coding else []
        self._front.send_metadata(self._id, lines_of([*coding, *metadata]))

    async def abort(self, code: StatusCode, details: str = "", trailing_metadata: Pairs = ()) -> NoReturn:
        raise Aborted(code, details, trailing_metadata)

    async def _next(self) -> tuple[bytes, bool] | None:
        while not self._came:
            self._something_came.clear()
            await self._something_came.wait()
        return self._came[0] if self._came[0] is _END else self._came.popleft()

    async def _inflated(self, message: bytes) -> bytes:
        encoding = str(dict(self._metadata).get("grpc-encoding", ""))
        if encoding not in WINDOW_BITS:
            raise Aborted(StatusCode.UNIMPLEMENTED, f"messages of encoding {encoding!r} are not read", ())
        try:
            return await asyncio.to_thread(inflated, [message], encoding, self._max_message_bytes)
        except TooLarge as error:
            raise Aborted(StatusCode.RESOURCE_EXHAUSTED, error.message, ()) from error
        except InvalidInput as error:
            raise Aborted(StatusCode.INTERNAL, error.message, ()) from error


def _value(name: str, text: str) -> str | bytes:
    if not name.endswith("-bin"):
        return text
    try:
        return b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return b""
