"""Refuses calls while the server stops.

gRPC's own stop ends those that it has not handed on yet with CANCELLED, as if the client had wanted that. So all that
have come are taken first, until no more do; then all are refused, until no more come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

import grpc
from grpc.aio import ServerInterceptor

from service.api.grpc.guard import Handler, refusal
from service.core.errors import Restarting

_QUIET_S = 0.05  # without a new call for this long
_PATIENCE_S = 0.5  # the longest wait under steady load


class DrainInterceptor(ServerInterceptor):  # type: ignore[misc]
    """The first interceptor of every call."""

    def __init__(self) -> None:
        self._came_s, self._is_closed = 0.0, False

    async def close(self) -> None:
        """Returns when the calls that came before were handed on, and those that come now were refused for a while."""
        await self._quiet()
        self._is_closed = True
        await self._quiet()

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]], details: grpc.HandlerCallDetails
    ) -> Handler:
        self._came_s = monotonic()
        return refusal(Restarting("the server is stopping")) if self._is_closed else await continuation(details)

    async def _quiet(self) -> None:
        self._came_s = begun_s = monotonic()
        while self._came_s > (now_s := monotonic()) - _QUIET_S and now_s < begun_s + _PATIENCE_S:
            await asyncio.sleep(_QUIET_S / 5)
