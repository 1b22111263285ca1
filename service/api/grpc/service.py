"""`inference.GRPCInferenceService`: its methods, each a translation of what `service.api.oip` answers over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.json_format import ParseDict
from grpc.aio import ServicerContext

from service.api.access import AuditLog
from service.api.grpc import inference_pb2 as pb
from service.api.grpc.compression import compress_if_asked, serialized
from service.api.grpc.infer import Infer
from service.api.grpc.messages import values_of
from service.api.grpc.status import abort, identified
from service.api.oip.about import About
from service.api.oip.address import parse_address
from service.api.oip.members import flag
from service.api.oip.repository import check_load, load, unload
from service.api.oip.request_templates import ModelTemplates
from service.api.ops.metrics import Metrics
from service.core.errors import NotFound, NotReady, Restarting
from service.workers.inference import Reference, Registry

if TYPE_CHECKING:
    from service.api.ops.tracing import Tracing

NAME = "inference.GRPCInferenceService"

Members = dict[str, Any]
Message = Any  # a message of `inference_pb2`, whose classes are made at run time
Method = Callable[[Message], Awaitable[Members]]


class InferenceService:
    """The methods, for one registry."""

    def __init__(
        self,
        registry: Registry,
        metrics: Metrics,
        audit: AuditLog,
        stopping: asyncio.Event,
        tracing: Tracing | None,
    ) -> None:
        self._registry, self._audit, self._stopping = registry, audit, stopping
        self._about = About(registry, metrics)
        self._infer = Infer(registry, metrics, tracing)

    @property
    def templates(self) -> ModelTemplates:
        """The request templates of each model."""
        return self._infer.templates

    def handler(self) -> grpc.GenericRpcHandler:
        """For `grpc.aio.Server.add_generic_rpc_handlers`. Messages are taken and given as bytes."""
        methods = {
            name: grpc.unary_unary_rpc_method_handler(_telling(method, *types))
            for name, (method, *types) in self._methods().items()
        }
        methods["ModelInfer"] = grpc.unary_unary_rpc_method_handler(self._model_infer)
        methods["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(self._model_stream_infer)
        return grpc.method_handlers_generic_handler(NAME, methods)

    def _methods(self) -> dict[str, tuple[Method, type[Message], type[Message]]]:
        """The methods that tell something: what they take, and what they give."""
        return {
            "ServerLive": (self._server_live, pb.ServerLiveRequest, pb.ServerLiveResponse),
            "ServerReady": (self._server_ready, pb.ServerReadyRequest, pb.ServerReadyResponse),
            "ServerMetadata": (self._server_metadata, pb.ServerMetadataRequest, pb.ServerMetadataResponse),
            "ModelReady": (self._model_ready, pb.ModelReadyRequest, pb.ModelReadyResponse),
            "ModelMetadata": (self._model_metadata, pb.ModelMetadataRequest, pb.ModelMetadataResponse),
            "ModelConfig": (self._model_config, pb.ModelConfigRequest, pb.ModelConfigResponse),
            "ModelStatistics": (self._model_statistics, pb.ModelStatisticsRequest, pb.ModelStatisticsResponse),
            "RepositoryIndex": (self._index, pb.RepositoryIndexRequest, pb.RepositoryIndexResponse),
            "RepositoryModelLoad": (self._load, pb.RepositoryModelLoadRequest, pb.RepositoryModelLoadResponse),
            "RepositoryModelUnload": (self._unload, pb.RepositoryModelUnloadRequest, pb.RepositoryModelUnloadResponse),
        }

    async def _model_infer(self, message: bytes, context: ServicerContext) -> bytes:
        try:
            answer = await self._infer.one(message, context)
        except Exception as exception:
            await abort(context, exception)
        await compress_if_asked(context)
        return serialized(answer, context)

    async def _model_stream_infer(
        self, messages: AsyncIterator[bytes], context: ServicerContext
    ) -> AsyncIterator[bytes]:
        await compress_if_asked(context)
        context.set_trailing_metadata(identified())
        try:
            async for answer in self._infer.stream(_until(self._stopping, messages), context):
                yield serialized(answer, context)
        except Exception as exception:
            await abort(context, exception)

    async def _server_live(self, request: pb.ServerLiveRequest) -> Members:
        return self._about.live()

    async def _server_ready(self, request: pb.ServerReadyRequest) -> Members:
        return {"ready": self._registry.is_ready}

    async def _server_metadata(self, request: pb.ServerMetadataRequest) -> Members:
        return self._about.server()

    async def _model_ready(self, request: pb.ModelReadyRequest) -> Members:
        try:
            return await self._about.model_ready(*_asked(request))
        except (NotFound, NotReady):
            return {"ready": False}

    async def _model_metadata(self, request: pb.ModelMetadataRequest) -> Members:
        return await self._about.model(*_asked(request))

    async def _model_config(self, request: pb.ModelConfigRequest) -> Members:
        return {"config": await self._about.config(*_asked(request))}

    async def _model_statistics(self, request: pb.ModelStatisticsRequest) -> Members:
        return await self._about.statistics(*_asked(request) if request.name else ())

    async def _index(self, request: pb.RepositoryIndexRequest) -> Members:
        return {"models": await self._about.index(request.ready)}

    async def _load(self, request: pb.RepositoryModelLoadRequest) -> Members:
        check_load(values_of(request.parameters))
        await load(self._registry, self._audit, request.model_name)
        return {}

    async def _unload(self, request: pb.RepositoryModelUnloadRequest) -> Members:
        flag(values_of(request.parameters), "unload_dependents", False)  # there are none
        await unload(self._registry, self._audit, request.model_name)
        return {}


def _asked(request: Message) -> tuple[str, Reference]:
    """The model and version that `request` names. Raises as `parse_address`."""
    return parse_address(request.name, request.version)


async def _until(stopping: asyncio.Event, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """`messages`, for as long as the server takes any: a stream may stay open forever.

    Raises:
        Restarting: the server stops, and the client may have sent more than it has answers to.
    """
    over = asyncio.ensure_future(stopping.wait())
    try:
        while True:
            following = asyncio.ensure_future(_next(messages))
            await asyncio.wait({following, over}, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                following.cancel()
                raise Restarting("the server is stopping")
            if (message := following.result()) is None:
                return
            yield message
    finally:
        over.cancel()


async def _next(messages: AsyncIterator[bytes]) -> bytes | None:
    return await anext(messages, None)


def _telling(
    method: Method, takes: type[Message], gives: type[Message]
) -> Callable[[bytes, ServicerContext], Awaitable[bytes]]:
    """`method` on serialized messages. What its document says beyond the message's members is left out."""

    async def call(message: bytes, context: ServicerContext) -> bytes:
        try:
            document = await method(takes.FromString(message))
        except Exception as exception:
            await abort(context, exception)
        context.set_trailing_metadata(identified())
        return bytes(ParseDict(document, gives(), ignore_unknown_fields=True).SerializeToString())

    return call
