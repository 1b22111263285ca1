"""The data plane's questions: resolving a model's name, and repository calls over gRPC."""

from __future__ import annotations

import logging
import socket
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any

from service.api.access import ANYBODY
from service.api.access.audit import caller
from service.api.access.tenants import shorten_names, tenant
from service.api.documents import title_of
from service.api.grpc.status import status_of as grpc_status_of
from service.api.oip.address import parse_address
from service.api.oip.repository import Repository
from service.api.services import Services
from service.api.statuses import may_be_retried, no_memory, status_of
from service.core.access.tenant import owner_of
from service.core.errors import NotReady, OctetError
from service.workers.data_plane.messages import Question
from service.workers.data_plane.plane import Answer, DataPlane

if TYPE_CHECKING:
    from service.api.grpc.repository import Calls

_logger = logging.getLogger(__name__)

Members = dict[str, Any]


class Questions:
    """Answers the questions of the data plane; an answer has members and bytes."""

    def __init__(self, services: Services) -> None:
        self._services, self._registry = services, services.registry

    @cached_property
    def _calls(self) -> Calls:
        from service.api.grpc.repository import (
            Calls,
        )  # imported only if needed: protobuf takes 2 MB, and few clients use it

        return Calls(Repository(self._registry, self._services.audit, self._services.routing))

    async def answer(self, question: Question, data: bytes) -> Answer:
        tenant.set(owner_of(question.get("model", "")))  # error messages then use this tenant's names
        try:
            if question["kind"] == "connect":
                return Answer({}, passed=await self._connected(question["worker"]))
            return Answer({}, await self._answer(question, data))
        except Exception as exception:
            return Answer({"problem": _problem(exception)})

    async def _answer(self, question: Question, data: bytes) -> bytes:
        match question["kind"]:
            case "resolve":
                resolver = self._services.routing or self._registry
                await resolver.resolve(*parse_address(question["model"], question["version"]))
                return b""
            case "call":
                who = question["caller"] or ANYBODY
                caller.set((who, question["request_id"]))
                tenant.set(self._services.access.tenant_of(who))
                return await self._calls.answer(question["path"], data)
        raise NotImplementedError(question["kind"])

    async def _connected(self, worker: str) -> socket.socket:
        knows = self._services.routing or self._services.plane
        if isinstance(knows, DataPlane):
            raise NotReady(f"this process has no worker {worker}")
        return await knows.connect(worker)


def _problem(exception: Exception) -> Members:
    error = no_memory(exception) if isinstance(exception, MemoryError) else exception
    if not isinstance(error, OctetError):
        _logger.error("cannot answer a question of the data plane", exc_info=exception)
        texts = {"detail": "The server failed unexpectedly.", "hint": "see the server's log"}
        return {"code": "internal_error", "title": "Internal error.", "http": 500, "grpc": 13, **texts}
    return {
        "code": error.code,
        "title": title_of(type(error)),
        "http": status_of(error),
        "grpc": int(grpc_status_of(error)),
        "may_be_retried": may_be_retried(error),
        "detail": shorten_names(error.message),
        "hint": shorten_names(error.hint or ""),
        "tensor": error.tensor or "",
        "retry_after_s": ceil(error.retry_after_s or 0),
    }
