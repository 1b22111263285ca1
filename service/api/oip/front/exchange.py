"""One predict request on a connection, from the bytes of its head to those of its answer, without a framework."""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from starlette.types import ASGIApp, Message, Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from service.core.buffers import ALIGNMENT_BYTES, aligned_empty

_logger = logging.getLogger(__name__)

# RFC 9112 without what it merely tolerates: obsolete line folds, bare line feeds, spaces before a colon. A head that is
# written otherwise is parsed elsewhere, where errors are reported.
_HEAD = re.compile(
    rb"POST (/v2/models/([\w.@-]+)(?:/versions/([\w.-]+))?/infer) HTTP/1\.1\r\n"
    rb"((?:[!#$%&'*+.^`|~\w-]+:[\t\x20-\x7e\x80-\xff]*\r\n)+)\r\n"
)
_SPECIAL = {b"transfer-encoding", b"expect", b"upgrade", b"connection"}
_LENGTHS = (b"content-length", b"inference-header-content-length")
_MAX_DIGITS = 12
_KEEP_ALIVE = (b"connection", b"keep-alive")

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Head:
    """The head of a predict request of the usual form: the body's length is known, and the connection is kept.

    Attributes:
        end: where the body begins.
        json_bytes: of the body, before its first tensor.
        body_bytes: in all.
    """

    path: bytes
    parameters: dict[str, str]
    headers: Headers
    end: int
    json_bytes: int
    body_bytes: int

    @staticmethod
    def of(arrived: bytes | bytearray, count: int, longest_bytes: int) -> Head | None:
        """The request head in the first `count` bytes of `arrived`. None where the head is incomplete or of another
        kind.
        """
        match = _HEAD.match(arrived, 0, count)
        if match is None:
            return None
        path, model, version, lines = match.groups()
        headers = [_header(line) for line in lines.split(b"\r\n")[:-1]]
        named = dict(headers)
        if len(named) != len(headers) or named.pop(*_KEEP_ALIVE) != _KEEP_ALIVE[1] or not _SPECIAL.isdisjoint(named):
            return None
        lengths = [named.get(name, b"0") for name in _LENGTHS]
        if not all(each.isdigit() and len(each) <= _MAX_DIGITS for each in lengths):
            return None
        body_bytes, json_bytes = map(int, lengths)
        if not json_bytes <= body_bytes <= longest_bytes or not body_bytes:
            return None
        parameters = {"model": model.decode()} | ({"version": version.decode()} if version else {})
        return Head(path, parameters, headers, match.end(), json_bytes, body_bytes)

    def scope(self, scheme: str | None, client: tuple[str, int] | None) -> Scope:
        """As an ASGI server describes the request; `scheme` is http or https."""
        path = self.path.decode()
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": scheme,
            "path": path,
            "raw_path": self.path,
            "root_path": "",
            "query_string": b"",
            "headers": self.headers,
            "client": client,
            "path_params": self.parameters,
        }


def head_of_answer(status: int, headers: Headers) -> bytes:
    """From the status line to the empty line."""
    lines = [STATUS_LINE[status]]
    for name, value in headers:
        lines += name, b": ", value, b"\r\n"
    lines.append(b"\r\n")
    return b"".join(lines)


def _header(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name.lower(), value.strip(b" \t")


class Arriving:
    """A body that arrives in one piece of memory, with its first tensor at a multiple of 64 bytes."""

    def __init__(self, json_bytes: int, body_bytes: int) -> None:
        """As `Head` names them."""
        gap = -json_bytes % ALIGNMENT_BYTES
        memory = aligned_empty([gap + body_bytes], np.uint8)  # costs no page before something arrives in it
        self.whole = self.rest = memory.data[gap:]

    def arrived(self, count: int) -> bool:
        """Takes note of `count` bytes in `rest`. Whether they were the last."""
        self.rest = self.rest[count:]
        return not self.rest


class Exchange:
    """A request and its answer.

    Attributes:
        answered: whether all of the answer was handed to the transport.
    """

    def __init__(self, transport: asyncio.Transport, scope: Scope, default_headers: Headers) -> None:
        self._transport, self._scope, self._default_headers = transport, scope, default_headers
        self._event = asyncio.Event()  # something that `receive` waits for
        self._body: memoryview | None = None
        self._start: Any = None
        self.gone = self.answered = False

    async def run(self, app: ASGIApp) -> None:
        """Asks `app`, and closes the connection where that gave no answer."""
        try:
            await app(self._scope, self._receive, self._send)
        except Exception:
            _logger.exception("a prediction ended in an unforeseen way")
        if not self.answered:
            self._transport.close()

    def body_arrived(self, body: memoryview) -> None:
        self._body = body
        self._event.set()

    def leave(self) -> None:
        """The client is gone."""
        self.gone = True
        self._event.set()

    async def _receive(self) -> Message:
        await self._event.wait()
        if self.gone or self._body is None:
            return {"type": "http.disconnect"}
        body, self._body = self._body, None
        self._event.clear()
        return {"type": "http.request", "body": body, "more_body": False}

    async def _send(self, message: Message) -> None:
        """The answer leaves in one piece: two writes are two packets, and two awakenings of its reader."""
        if message["type"] == "http.response.start":
            self._start = message
            return
        if self.gone or self.answered or self._transport.is_closing():
            return
        assert not message.get("more_body")  # answers to predictions have one part
        head = head_of_answer(self._start["status"], [*self._default_headers, *self._start["headers"]])
        self._transport.write(head + message["body"])
        self.answered = True
