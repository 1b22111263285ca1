"""The gRPC listener where nothing is encrypted: the native front speaks HTTP/2, and the same servicers answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from inspect import isawaitable
from types import SimpleNamespace
from typing import Any

import grpc
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server

from service.api.access import ANYBODY
from service.api.access.audit import asking
from service.api.grpc.calls import Aborted, Call
from service.api.grpc.guard import GrpcGuard
from service.api.grpc.health import Health
from service.api.grpc.port import listen
from service.api.grpc.service import NAME, InferenceService
from service.api.grpc.status import abort
from service.api.grpc.wire import CODES, GrpcWire
from service.api.oip.front.records import error_of
from service.api.oip.front.support import FrontSupport
from service.api.oip.request_templates import ModelTemplates
from service.api.ops.peers import HEAD_BYTES
from service.api.services import Services
from service.core.settings import Settings
from service.native import CallBegan, Canceled, GrpcFront, GrpcLimits, MessageCame, Problem

_IDLE_TIMEOUT_S = 1800.0  # a channel connects again when it is used


class NativeGrpcServer:
    """As `GrpcServer`, whose methods it has. For the event loop that the registry lives on."""

    def __init__(self, services: Services, host: str, port: int) -> None:
        self._stopping = asyncio.Event()
        self._services = services
        self._service = InferenceService(
            services.registry, services.metrics, services.audit, self._stopping, services.tracing
        )
        self._guard = GrpcGuard(services.access, services.metrics)
        self._limits = _limits(services.settings)
        self._host, self._port = host, port
        self._handlers: list[Any] = [self._service.handler()]
        add_HealthServicer_to_server(Health(NAME, self._stopping), self)
        self._calls: dict[int, tuple[Call, asyncio.Task[None]]] = {}
        self._front: GrpcFront | None = None

    def add_generic_rpc_handlers(self, handlers: tuple[Any, ...]) -> None:
        """As `grpc.Server` has it, for what is generated from a service's definition."""
        self._handlers += handlers

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Likewise: they are the same ones."""

    async def start(self) -> int:
        """As `GrpcServer.start`, with its errors."""
        self._listener = listen(self._host, self._port)
        self._front = GrpcFront.on(self._listener.fileno(), self._limits, self._services.peers)
        # What is traced is answered in Python: then there are no templates.
        templates = self._service.templates if self._services.tracing is None else ModelTemplates()
        self._support = FrontSupport(self._front, GrpcWire(), templates, self._services, "grpc", CODES)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._front.descriptor(), self._happened, self._front)
        return int(self._listener.getsockname()[1])

    async def stop(self, grace_s: float) -> None:
        if self._front is not None:
            if not self._stopping.is_set():
                self._front.stop()
            self._stopping.set()
            impatience = self._loop.call_later(grace_s, self._front.stop)  # for the second time
            await asyncio.to_thread(self._front.join)
            impatience.cancel()
            self._happened(self._front)
            await asyncio.gather(*(task for _, task in self._calls.values()), return_exceptions=True)
            self._loop.remove_reader(self._front.descriptor())
            self._support.end()
            self._listener.close()
        self._stopping.set()

    def _happened(self, front: GrpcFront) -> None:
        for event in front.happened():
            if isinstance(event, CallBegan):
                call = Call(front, event, self._limits.max_message_bytes)
                self._begin(event.call, call, self._answer(call))
            elif isinstance(event, Problem):
                call = Call(front, CallBegan(event.exchange, "", None, ()), 0)
                self._begin(event.exchange, call, self._refuse(call, event))
            elif event.call in self._calls:  # else it was answered meanwhile
                call, task = self._calls[event.call]
                if isinstance(event, MessageCame):
                    call.message_came(event.message, event.is_compressed)
                elif isinstance(event, Canceled):
                    task.cancel()
                else:
                    call.half_closed()

    def _begin(self, number: int, call: Call, answer: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(answer)
        self._calls[number] = call, task
        task.add_done_callback(lambda _: self._ended(number))

    def _ended(self, number: int) -> None:
        call, _ = self._calls.pop(number)
        if not call.is_finished:  # it was canceled: until now it counted
            call.release()

    async def _refuse(self, call: Call, problem: Problem) -> None:
        """Ends a call that the front could not answer itself."""
        asking.set((ANYBODY, problem.request_id))
        error = error_of(problem)
        try:
            await abort(call, error)
        except Aborted as end:
            identity = self._support.routes.address(problem.entry).served.identity
            self._support.records.refused(identity, problem, error, end.code.name)
            call.finish(end.code, end.details, end.trailers)

    async def _answer(self, call: Call) -> None:
        try:
            try:
                await self._respond(call)
            except Aborted:
                raise
            except Exception as exception:
                await abort(call, exception)
        except Aborted as end:
            call.finish(end.code, end.details, end.trailers)

    async def _respond(self, call: Call) -> None:
        details = SimpleNamespace(method=call.path, invocation_metadata=call.invocation_metadata())
        handler = await self._guard.intercept_service(self._handler, details)
        if handler is None:
            raise Aborted(grpc.StatusCode.UNIMPLEMENTED, f"there is no method {call.path!r}", ())
        takes, gives = handler.request_deserializer or bytes, handler.response_serializer or bytes
        request: Any
        if handler.request_streaming:
            request = (takes(message) async for message in call.messages())
        else:
            request = takes(await call.only_message())
        if handler.response_streaming:
            await _send_all((handler.stream_stream or handler.unary_stream)(request, call), gives, call)
        else:
            respond = handler.stream_unary or handler.unary_unary
            await call.send(gives(await respond(request, call)))
        call.finish()

    async def _handler(self, details: Any) -> Any:
        found = (each.service(details) for each in self._handlers)
        return next((handler for handler in found if handler is not None), None)


async def _send_all(answers: Any, gives: Callable[[Any], bytes], call: Call) -> None:
    if isawaitable(answers):  # a refusal has none
        await answers
        return
    async with aclosing(answers):
        async for answer in answers:
            await call.send(gives(answer))
            call.flush()


def _limits(settings: Settings) -> GrpcLimits:
    return GrpcLimits(
        head_timeout_s=settings.head_timeout_s,
        stall_timeout_s=settings.stall_timeout_s,
        idle_timeout_s=_IDLE_TIMEOUT_S,
        min_body_bytes=settings.min_body_bytes,
        max_message_bytes=settings.max_predict_bytes + HEAD_BYTES,
    )
