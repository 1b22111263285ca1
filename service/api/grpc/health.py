"""`grpc.health.v1.Health`, as probes and load balancers ask it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from grpc import StatusCode
from grpc.aio import ServicerContext
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthServicer

Status = HealthCheckResponse.ServingStatus


class Health(HealthServicer):  # type: ignore[misc]  # gRPC comes without types
    """The server as a whole, and one service of it: both serve until `stopping` is set.

    gRPC's own keeps a watch open for as long as its client does, so that a stop would wait for all of its grace.
    """

    def __init__(self, service: str, stopping: asyncio.Event) -> None:
        self._services = ("", service)
        self._stopping = stopping

    async def Check(self, request: HealthCheckRequest, context: ServicerContext) -> HealthCheckResponse:
        if request.service not in self._services:
            await context.abort(StatusCode.NOT_FOUND, f"there is no service {request.service!r}")
        return self._status()

    async def Watch(self, request: HealthCheckRequest, context: ServicerContext) -> AsyncIterator[HealthCheckResponse]:
        if request.service in self._services:
            yield self._status()
        else:
            yield HealthCheckResponse(status=Status.SERVICE_UNKNOWN)
        await self._stopping.wait()
        yield self._status()

    def _status(self) -> HealthCheckResponse:
        return HealthCheckResponse(status=Status.NOT_SERVING if self._stopping.is_set() else Status.SERVING)
