"""The front on the server's socket, and everything that it leaves to Python."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from typing import Any

from starlette.types import Scope
from uvicorn.server import ServerState

from service.api.oip.front.exchange import Headers, head_of_answer
from service.api.oip.front.records import error_of
from service.api.oip.front.routes import RestWire
from service.api.oip.front.support import FrontSupport
from service.api.oip.infer import LEND_AFTER_S
from service.api.oip.request_templates import ModelTemplates
from service.api.problems import problem_response, unexpected_response
from service.api.services import Services
from service.core.errors import OctetError
from service.core.settings import Auth, Settings
from service.native import Front, FrontLimits, Handover, Problem

_logger = logging.getLogger(__name__)
_NAMES = "localhost", "127.0.0.1", "[::1]"


class FrontServer:
    """For the event loop's thread.

    Attributes:
        routes: which requests it answers.
    """

    def __init__(
        self,
        listener: socket.socket,
        settings: Settings,
        services: Services,
        templates: ModelTemplates,
        connections: Callable[[], Any],
        state: ServerState,
        headers: Headers,
        keep_alive_s: float,
    ) -> None:
        """Takes connections from now on.

        Args:
            templates: see `FrontRoutes`.
            connections: makes the protocol of a connection that Python is to go on with.
            state: of the server, with the headers of every answer.
            headers: these, where `state` does not have them yet.
        """
        listener.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._connections, self._state = connections, state
        limits = _limits(settings, keep_alive_s, listener.getsockname()[1])
        self._front = Front.on(listener.fileno(), limits, services.peers)
        self._support = FrontSupport(self._front, RestWire(headers), templates, services, "rest")
        self.routes = self._support.routes
        self._loop.add_reader(self._front.descriptor(), self._happened)
        self._arriving: set[asyncio.Task[None]] = set()

    def takes(self, received: bytes) -> bool:
        """Whether the request that `received` begins would be answered without Python."""
        return self._front.takes(received)

    def give_back(self, transport: asyncio.Transport, received: bytes) -> None:
        """Ends `transport`, whose connection goes on in the front with the request that `received` begins."""
        descriptor = os.dup(transport.get_extra_info("socket").fileno())
        transport.abort()  # closes its descriptor, and not the connection, which has another
        self._front.adopt(descriptor, received)

    async def stop(self, grace_s: float) -> None:
        """Takes no more connections; what is under way has `grace_s` to end."""
        self._front.stop()
        impatience = self._loop.call_later(grace_s, self._front.stop)  # for the second time
        await asyncio.to_thread(self._front.join)
        impatience.cancel()
        self._happened()
        self._loop.remove_reader(self._front.descriptor())
        self._support.end()

    def _happened(self) -> None:
        for event in self._front.happened():
            if isinstance(event, Handover):
                task = self._loop.create_task(self._take_over(event))
                self._arriving.add(task)
                task.add_done_callback(self._arriving.discard)
            else:
                self._front.answer(event.exchange, self._answer(event))

    async def _take_over(self, event: Handover) -> None:
        connection = socket.socket(fileno=event.descriptor)

        def make() -> Any:
            protocol = self._connections()
            protocol.received, protocol.seat = event.received, event.seat
            return protocol

        try:
            connection.setblocking(False)
            await self._loop.connect_accepted_socket(make, connection)
        except OSError as error:  # it was closed meanwhile
            connection.close()
            event.seat.leave()
            _logger.debug("a connection ended before it began: %s", error)

    def _answer(self, problem: Problem) -> bytes:
        """Its whole answer, head and all."""
        address = self.routes.address(problem.entry)
        scope: Scope = {"path": address.path, "octet.request_id": problem.request_id}
        error = error_of(problem)
        if isinstance(error, OctetError):
            response = problem_response(error, scope)
        else:
            response = unexpected_response(error, scope)
        self._support.records.refused(address.served.identity, problem, error, response.status_code)
        headers = [*response.raw_headers, (b"x-request-id", problem.request_id.encode())]
        return head_of_answer(response.status_code, [*self._state.default_headers, *headers]) + bytes(response.body)


def _limits(settings: Settings, keep_alive_s: float, port: int) -> FrontLimits:
    return FrontLimits(
        head_timeout_s=settings.head_timeout_s,
        keep_alive_s=keep_alive_s,
        stall_timeout_s=settings.stall_timeout_s,
        min_body_bytes=settings.min_body_bytes,
        lend_after_s=LEND_AFTER_S,
        max_head_bytes=settings.max_head_bytes,
        longest_body_bytes=settings.max_predict_bytes,
        # As in `access.sites`; requests by another name of this machine are checked there.
        hosts=[] if settings.auth is Auth.OFF else [f"{name}{end}" for name in _NAMES for end in ("", f":{port}")],
    )
