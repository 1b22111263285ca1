"""uvicorn behind the front, which listens where neither TLS nor tracing is configured."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import partial

import uvicorn
from fastapi import FastAPI
from uvicorn.lifespan.off import LifespanOff
from uvicorn.lifespan.on import LifespanOn

from service.api.oip.front.server import FrontServer
from service.api.services import Services
from service.core.settings import Settings


class Fronted(uvicorn.Server):
    """Serves an application with `state.services` on one socket."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, settings: Settings) -> None:
        super().__init__(config)
        self._app, self._settings = app, settings
        self._front: FrontServer | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        services: Services = self._app.state.services
        if not sockets or self.config.is_ssl or services.tracing is not None:
            await super().startup(sockets)
            return
        await super().startup([])
        self._start_front(sockets[0], services)

    def drains(self) -> list[Awaitable[None]]:
        """Awaitables that complete when every request that uvicorn did not take is answered."""
        return [] if self._front is None else [self._front.stop(self._settings.grace_s)]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        draining = asyncio.gather(*self.drains())
        self.lifespan = _After(draining, self.lifespan)
        await super().shutdown(sockets if self._front is None else [])
        await draining  # where that was cut short

    def _start_front(self, listener: socket.socket, services: Services) -> None:
        connection: Callable[..., asyncio.BaseProtocol] = self.config.http_protocol_class
        state = self.server_state
        make = partial(connection, config=self.config, server_state=state, app_state=self.lifespan.state)
        keep_alive_s = self.config.timeout_keep_alive
        templates = self._app.state.infer.templates
        headers = [*([(b"date", b"")] if self.config.date_header else []), *self.config.encoded_headers]
        self._front = FrontServer(listener, self._settings, services, templates, make, state, headers, keep_alive_s)
        self._app.state.front = self._front


class _After:
    """uvicorn's `lifespan`, whose end waits for something: models are unloaded after the last request."""

    def __init__(self, before: asyncio.Future[list[None]], lifespan: LifespanOn | LifespanOff) -> None:
        self._before, self._lifespan = before, lifespan

    async def shutdown(self) -> None:
        await self._before
        await self._lifespan.shutdown()
