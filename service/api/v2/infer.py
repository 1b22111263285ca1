"""`POST /v2/models/{model}[/versions/{version}]/infer`: the road that everything else is there for, kept short.

A bare ASGI application. Nothing on it is a pydantic model, and a binary tensor is copied once: from the chunks of
the body into the aligned memory that the compiled code reads.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.metrics import Metrics
from service.api.problems import problem_response, status_of
from service.api.v2.address import model_and_version
from service.api.v2.body import Head, read_body
from service.api.v2.inputs import Picture
from service.api.v2.request import parse_request
from service.api.v2.response import Answer, render
from service.api.v2.telemetry import RequestTelemetry
from service.api.v2.tensors import Array
from service.core.errors import OctetError
from service.runtime import image
from service.workers.inference import Abandoned, Permit, Registry, Served

_CLIENT_CLOSED_REQUEST = 499  # nginx's code for an answer that nobody waits for


class Infer:
    """The endpoint, for every model."""

    def __init__(self, registry: Registry, metrics: Metrics, max_bytes: int) -> None:
        self._registry = registry
        self._telemetry = RequestTelemetry(metrics)
        self._max_bytes = max_bytes
        cores = len(os.sched_getaffinity(0))
        self._decoders = ThreadPoolExecutor(cores, "octet-decode")  # bounds the memory that pictures take meanwhile

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            head = Head.of(scope["headers"])
            served = await self._registry.acquire(*model_and_version(scope))
        except OctetError as error:
            response: ASGIApp = self._refuse(error, scope)
        else:
            try:
                response = await self._respond(served, head, scope, receive)
            finally:
                served.release()
        await response(scope, receive, send)

    async def _respond(self, served: Served, head: Head, scope: Scope, receive: Receive) -> ASGIApp:
        requests = self._telemetry.of(served.identity)
        code, arrived_s = 500, perf_counter()
        try:
            served.check_room()  # before a byte of the body is read
            body = await read_body(receive, head, self._max_bytes)
            arrived_s = perf_counter()
            with served.permit() as permit:
                request = parse_request(head, body, served.signature, served.batches)
                inputs = await self._decode(request.inputs)
                requests.prepared(perf_counter() - arrived_s)
                outputs = await _run(permit, inputs, receive)
            ran_s = perf_counter()
            answer: Answer = render(served, request, outputs)
            requests.rendered(perf_counter() - ran_s)
            code = 200
            return answer
        except OctetError as error:
            code = status_of(error)
            return self._refuse(error, scope)
        except ClientDisconnect:
            code = _CLIENT_CLOSED_REQUEST
            self._telemetry.canceled()
            raise
        finally:
            requests.answered(code, perf_counter() - arrived_s)

    def _refuse(self, error: OctetError, scope: Scope) -> ASGIApp:
        self._telemetry.rejected(error)
        return problem_response(error, scope)

    async def _decode(self, inputs: Sequence[Array | Picture]) -> Sequence[Array]:
        loop = asyncio.get_running_loop()
        return [
            await loop.run_in_executor(self._decoders, image.decode, each.data, each.spec)
            if isinstance(each, Picture)
            else each
            for each in inputs
        ]


async def _run(permit: Permit, inputs: Sequence[Array], receive: Receive) -> Sequence[Array]:
    """The outputs; a client that leaves while others are before it is dropped from the queue.

    Raises:
        ClientDisconnect: it left.
    """
    if not permit.has_to_wait:  # its turn is now, and a computation is not interrupted
        return await permit.run(inputs)
    leaving = asyncio.ensure_future(_disconnected(receive))
    leaving.add_done_callback(lambda _: permit.abandon())
    try:
        return await permit.run(inputs)
    except Abandoned:
        raise ClientDisconnect from None
    finally:
        leaving.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
