"""Access control for all gRPC calls, as `service.api.access.guard` is for HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn

import grpc
from grpc.aio import ServerInterceptor, ServicerContext

from service.api.access import ANYBODY, Access
from service.api.access.audit import asking
from service.api.access.rules import GRPC, scopes_of
from service.api.grpc.status import abort
from service.api.ops.metrics import Metrics
from service.api.ops.request_log import id_of
from service.core.errors import OctetError
from service.core.key import Key

Handler = Any  # grpc.RpcMethodHandler; gRPC comes without types


class GrpcGuard(ServerInterceptor):  # type: ignore[misc]
    """Takes the key from the metadata `authorization`, and the call's id. Of a stream, each request counts."""

    def __init__(self, access: Access, metrics: Metrics) -> None:
        self._access, self._metrics = access, metrics

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]], details: grpc.HandlerCallDetails
    ) -> Handler:
        metadata = dict(details.invocation_metadata or ())
        identity = id_of(str(metadata.get("x-request-id", "")))
        asking.set((ANYBODY, identity))
        needed = scopes_of(GRPC, details.method)
        if not needed:
            return await continuation(details)
        given = metadata.get("authorization")
        try:
            key = self._access.identify(given.encode() if given is not None else None, *needed)
            handler = await continuation(details)
            if handler is None or not handler.request_streaming:
                self._access.charge(key)
        except OctetError as error:
            self._metrics.requests_not_allowed.labels(error.code).inc()
            return refusal(error)
        if key is not None:
            asking.set((key.id, identity))
        if key is None or handler is None or not handler.request_streaming:
            return handler
        return grpc.stream_stream_rpc_method_handler(self._charging(handler.stream_stream, key))

    def _charging(self, respond: Callable[..., AsyncIterator[bytes]], key: Key) -> Callable[..., AsyncIterator[bytes]]:
        async def charged(messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
            async for message in messages:
                self._access.charge(key)
                yield message

        async def call(messages: AsyncIterator[bytes], context: ServicerContext) -> AsyncIterator[bytes]:
            async for answer in respond(charged(messages), context):
                yield answer

        return call


def refusal(error: OctetError) -> Handler:
    """Answers at once, with `error`: as a method on streams, it is called before any message is read."""

    async def refuse(messages: AsyncIterator[bytes], context: ServicerContext) -> NoReturn:
        await abort(context, error)

    return grpc.stream_stream_rpc_method_handler(refuse)
