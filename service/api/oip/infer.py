"""`POST /v2/models/{model}[/versions/{version}]/infer`: the hot path, kept short.

A bare ASGI application. No pydantic model is involved, and a binary tensor is copied once: from the chunks of
the body into the aligned memory that the compiled code reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from time import monotonic

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.oip.address import model_and_version
from service.api.oip.body import Body, Head, read_body
from service.api.oip.parse import parse_request
from service.api.oip.predictor import Predictor
from service.api.oip.request_templates import ModelTemplates
from service.api.oip.response import encoded, render
from service.api.oip.telemetry import RequestTelemetry
from service.api.oip.tensors import Array
from service.api.oip.timeline import Timeline
from service.api.ops.metrics import Metrics
from service.api.ops.traced import TRACE
from service.api.problems import problem_response, status_of
from service.core.errors import OctetError
from service.workers.inference import Abandoned, Permit, Registry, Served, Terms

LEND_AFTER_S = 0.1  # by then a body is there, or its sender keeps others waiting
_CLIENT_CLOSED_REQUEST = 499  # nginx's code for an answer whose client has left


class Infer:
    """The endpoint, for every model.

    Attributes:
        templates: of each model's requests.
    """

    def __init__(self, registry: Registry, metrics: Metrics, max_bytes: int) -> None:
        self._registry = registry
        self._predictor = Predictor()
        self._telemetry = RequestTelemetry(metrics, "rest")
        self._max_bytes = max_bytes
        self.templates = ModelTemplates()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            head = Head.of(scope["headers"])
            served = await self._registry.acquire(*model_and_version(scope), head.affinity)
        except OctetError as error:
            await self._refuse(error, scope)(scope, receive, send)
            return
        timeline = Timeline(unforeseen=500)
        try:
            try:
                response = await self._respond(served, head, timeline, scope, receive)
            finally:
                served.release()
            await response(scope, receive, send)
        finally:
            self._telemetry.answered(served.identity, timeline)
            if (trace := scope.get(TRACE)) is not None:
                trace.describe(served.identity, timeline)

    async def _respond(self, served: Served, head: Head, timeline: Timeline, scope: Scope, receive: Receive) -> ASGIApp:
        try:
            templates = self.templates.of(served)
            with served.permit(head.timeout_s) as permit:  # before a byte of the body is read
                permit.tag = scope.get(TRACE)
                body = await self._read(permit, receive, head)
                timeline.arrived_s = monotonic()
                request, outputs = await self._predictor.predict(
                    permit,
                    timeline,
                    parse=partial(parse_request, head, body, served.signature, served.batches, templates),
                    metadata=served.metadata,
                    run=partial(_run, receive),
                )
            answer = await encoded(render(served, request, outputs), head.coding)
            timeline.end(200)
            answer.headers.append((b"server-timing", timeline.server_timing()))
            return answer
        except OctetError as error:
            timeline.end(status_of(error))
            return self._refuse(error, scope)
        except ClientDisconnect:
            timeline.end(_CLIENT_CLOSED_REQUEST)
            self._telemetry.canceled()
            raise

    async def _read(self, permit: Permit, receive: Receive, head: Head) -> Body:
        """The body. While a slow client sends it, others may have the place."""
        lending = asyncio.get_running_loop().call_later(LEND_AFTER_S, permit.lend)
        try:
            body = await read_body(receive, head, self._max_bytes)
        finally:
            lending.cancel()
        permit.claim()
        return body

    def _refuse(self, error: OctetError, scope: Scope) -> ASGIApp:
        self._telemetry.rejected(error)
        return problem_response(error, scope)


async def _run(receive: Receive, permit: Permit, inputs: Sequence[Array], terms: Terms) -> Sequence[Array]:
    """The outputs; a client that leaves while others are before it is dropped from the queue.

    Raises:
        ClientDisconnect: it left.
    """
    if not permit.has_to_wait:  # its turn is now, and a computation is not interrupted
        return await permit.run(inputs, terms)
    leaving = asyncio.ensure_future(_disconnected(receive))
    leaving.add_done_callback(lambda _: permit.abandon())
    try:
        return await permit.run(inputs, terms)
    except Abandoned:
        raise ClientDisconnect from None
    finally:
        leaving.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
