"""The model_repository extension: which models there are, and loading and unloading them by hand.

A load is not needed before a prediction, which loads what it needs; it tries again at once what failed before, and
takes back an unload. An unload frees the memory and has requests refused, in this process, until a load or its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from service.api.access import AuditLog
from service.api.oip.about import About
from service.api.oip.body import Head, read_body
from service.api.oip.members import flag, json_object, parameters_of
from service.core.errors import Unsupported
from service.workers.inference import Registry

_MAX_BYTES = 64 << 10


class Repository:
    """The endpoints, for one registry."""

    def __init__(self, registry: Registry, about: About, audit: AuditLog) -> None:
        self._registry, self._about, self._audit = registry, about, audit

    async def index(self, request: Request) -> JSONResponse:
        return JSONResponse(await self._about.index(flag(await _body(request), "ready", False)))

    async def load(self, request: Request) -> JSONResponse:
        check_load(parameters_of(await _body(request), "the request"))
        name = request.path_params["model"]
        await load(self._registry, self._audit, name)
        return JSONResponse({"name": name, "load": True})

    async def unload(self, request: Request) -> JSONResponse:
        flag(parameters_of(await _body(request), "the request"), "unload_dependents", False)  # there are none
        name = request.path_params["model"]
        await unload(self._registry, self._audit, name)
        return JSONResponse({"name": name, "unload": True})


async def load(registry: Registry, audit: AuditLog, name: str) -> None:
    await registry.load(name)
    await asyncio.to_thread(audit.note, "load", model=name)


async def unload(registry: Registry, audit: AuditLog, name: str) -> None:
    await registry.unload(name)
    await asyncio.to_thread(audit.note, "unload", model=name)


def check_load(parameters: Mapping[str, Any]) -> None:
    """Raises `Unsupported` where a load is asked to change the model, as Triton's may: here that is a push."""
    for name in parameters:
        if name == "config" or name.startswith("file:"):
            raise Unsupported(
                f"a load takes no parameter {name!r}: a model is what was pushed",
                hint="push the changed model as a new version",
            )


async def _body(request: Request) -> Mapping[str, Any]:
    """The members of the JSON object that is the body; none if it is empty."""
    body = await read_body(request.receive, Head.of(request.scope["headers"]), _MAX_BYTES)
    return json_object(body.take(body.remaining_bytes)) if body.remaining_bytes else {}
