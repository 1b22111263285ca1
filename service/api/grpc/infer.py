"""`ModelInfer` and `ModelStreamInfer`."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import AsyncIterator
from functools import partial
from time import perf_counter

from grpc import StatusCode
from grpc.aio import ServicerContext

from service.api.grpc import inference_pb2 as pb
from service.api.grpc.messages import Received, response
from service.api.grpc.status import status_of, understood
from service.api.metrics import Metrics
from service.api.v2.address import parse_address
from service.api.v2.predictor import Predictor
from service.api.v2.telemetry import RequestTelemetry
from service.core.errors import OctetError
from service.workers.inference import Registry, Served


class Infer:
    """The methods, for every model."""

    def __init__(self, registry: Registry, metrics: Metrics) -> None:
        self._registry = registry
        self._predictor = Predictor()
        self._telemetry = RequestTelemetry(metrics, "grpc")

    async def one(self, message: bytes, context: ServicerContext) -> pb.ModelInferResponse:
        """The answer to a serialized `ModelInferRequest`.

        Its deadline holds in the queue, too. gRPC cancels the task when the deadline passes or the client cancels; a
        request that waits for its turn is then never computed.

        Raises:
            OctetError, DecodeError: it is refused.
        """
        arrived_s = perf_counter()
        try:
            received = Received.of(message)
            address = parse_address(received.head.model_name, received.head.model_version)
            served = await self._registry.acquire(*address, _affinity(context))
        except OctetError as error:
            self._telemetry.rejected(error)
            raise
        try:
            return await self._respond(served, received, context, arrived_s)
        finally:
            served.release()

    async def stream(
        self, messages: AsyncIterator[bytes], context: ServicerContext
    ) -> AsyncIterator[pb.ModelStreamInferResponse]:
        """The answers to `messages`, one after the other; what is refused is an answer that says so."""
        async for message in messages:
            try:
                yield pb.ModelStreamInferResponse(infer_response=await self.one(message, context))
            except Exception as exception:
                if (error := understood(exception)) is None:
                    raise
                yield pb.ModelStreamInferResponse(error_message=error.message)

    async def _respond(
        self, served: Served, received: Received, context: ServicerContext, arrived_s: float
    ) -> pb.ModelInferResponse:
        requests = self._telemetry.of(served.identity)
        code = StatusCode.INTERNAL
        try:
            with served.permit(context.time_remaining()) as permit:
                request, outputs = await self._predictor.predict(
                    permit, requests, parse=partial(received.request, served.signature, served.batches)
                )
            ran_s = perf_counter()
            message = response(served, request, outputs)
            requests.rendered(perf_counter() - ran_s)
            code = StatusCode.OK
            return message
        except OctetError as error:
            code = status_of(error)
            self._telemetry.rejected(error)
            raise
        except CancelledError:
            code = StatusCode.CANCELLED
            self._telemetry.canceled()
            raise
        finally:
            requests.answered(code.name, perf_counter() - arrived_s)


def _affinity(context: ServicerContext) -> bytes | None:
    """As the header `Octet-Affinity` over HTTP."""
    value = next((value for name, value in context.invocation_metadata() or () if name == "octet-affinity"), None)
    return value.encode() if isinstance(value, str) else value
