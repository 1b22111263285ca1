"""`ModelInfer` and `ModelStreamInfer`."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING

from grpc import StatusCode
from grpc.aio import ServicerContext

from service.api.grpc import inference_pb2 as pb
from service.api.grpc.messages import Received, response
from service.api.grpc.status import identified, request_id, status_of, understood
from service.api.grpc.traced import traced
from service.api.oip.address import parse_address
from service.api.oip.predictor import Predictor
from service.api.oip.request_templates import ModelTemplates
from service.api.oip.telemetry import RequestTelemetry
from service.api.oip.timeline import Timeline
from service.api.ops.metrics import Metrics
from service.api.ops.request_log import about_request
from service.core.errors import OctetError
from service.core.logs import about
from service.workers.inference import Registry, Served

if TYPE_CHECKING:
    from service.api.ops.tracing import Trace, Tracing


class Infer:
    """The methods, for every model.

    Attributes:
        templates: of each model's requests.
    """

    def __init__(self, registry: Registry, metrics: Metrics, tracing: Tracing | None) -> None:
        self._registry, self._tracing = registry, tracing
        self._predictor, self.templates = Predictor(), ModelTemplates()
        self._telemetry = RequestTelemetry(metrics, "grpc")

    async def one(self, message: bytes, context: ServicerContext) -> pb.ModelInferResponse:
        """The answer to a serialized `ModelInferRequest`.

        Its deadline holds in the queue, too. gRPC cancels the task when the deadline passes or the client cancels; a
        request that waits for its turn is then never computed.

        Its timings are in the trailer `server-timing`, as over HTTP in the header.

        Raises:
            OctetError, DecodeError: it is refused.
        """
        answer, timeline = await self._traced(message, context)
        context.set_trailing_metadata((*identified(), ("server-timing", timeline.server_timing().decode())))
        return answer

    async def stream(
        self, messages: AsyncIterator[bytes], context: ServicerContext
    ) -> AsyncIterator[pb.ModelStreamInferResponse]:
        """The answers to `messages`, one after the other; what is refused is an answer that says so."""
        async for message in messages:
            try:
                answer, _ = await self._traced(message, context)
                yield pb.ModelStreamInferResponse(infer_response=answer)
            except Exception as exception:
                if (error := understood(exception)) is None:
                    raise
                yield pb.ModelStreamInferResponse(error_message=error.message)

    async def _traced(self, message: bytes, context: ServicerContext) -> tuple[pb.ModelInferResponse, Timeline]:
        if self._tracing is None:
            return await self._one(message, context)
        with traced(self._tracing, context) as trace:
            return await self._one(message, context, trace)

    async def _one(
        self, message: bytes, context: ServicerContext, trace: Trace | None = None
    ) -> tuple[pb.ModelInferResponse, Timeline]:
        timeline = Timeline(unforeseen=StatusCode.INTERNAL.name)
        about.set(partial(_about, context, trace))
        try:
            received = Received.of(message)
            address = parse_address(received.head.model_name, received.head.model_version)
            served = await self._registry.acquire(*address, _affinity(context))
        except OctetError as error:
            self._telemetry.rejected(error)
            raise
        try:
            return await self._respond(served, received, context, timeline, trace), timeline
        finally:
            served.release()
            if trace is not None:
                trace.describe(served.identity, timeline)
            # gRPC sends the answer when this task is over, and the loop calls this when that has been begun.
            asyncio.get_running_loop().call_soon(self._telemetry.answered, served.identity, timeline)

    async def _respond(
        self,
        served: Served,
        received: Received,
        context: ServicerContext,
        timeline: Timeline,
        trace: Trace | None,
    ) -> pb.ModelInferResponse:
        try:
            with served.permit(context.time_remaining()) as permit:
                permit.tag = trace
                request, outputs = await self._predictor.predict(
                    permit,
                    timeline,
                    parse=partial(received.request, served.signature, served.batches, self.templates.of(served)),
                    metadata=served.metadata,
                )
            message = response(served, request, outputs)
            timeline.end(StatusCode.OK.name)
            return message
        except OctetError as error:
            timeline.end(status_of(error).name)
            self._telemetry.rejected(error)
            raise
        except CancelledError:
            timeline.end(StatusCode.CANCELLED.name)
            self._telemetry.canceled()
            raise


def _affinity(context: ServicerContext) -> bytes | None:
    """As the header `Octet-Affinity` over HTTP."""
    value = next((value for name, value in context.invocation_metadata() or () if name == "octet-affinity"), None)
    return value.encode() if isinstance(value, str) else value


def _about(context: ServicerContext, trace: Trace | None) -> dict[str, str]:
    """The fields that a call adds to its log lines."""
    headers = dict(context.invocation_metadata() or ())
    return about_request(request_id(), str(headers.get("traceparent", "")), trace)
