"""Maps errors to HTTP responses: an RFC 9457 problem document for every error of every endpoint.

Each document also has the member `error`, equal to `detail`, which clients of the Open Inference Protocol read.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from math import ceil
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Scope

from service.api.access.tenants import shorten_names
from service.api.documents import MEDIA_TYPE, document, title_of
from service.api.statuses import may_be_retried, no_memory, status_of
from service.core import errors
from service.core.errors import OctetError
from service.core.models.alias import ALIAS_PATTERN
from service.core.models.model import NAME_PATTERN

_logger = logging.getLogger(__name__)

_METHODS = ("delete", "get", "head", "patch", "post", "put")
_PATTERNS = {  # patterns in the schemas, with their meaning for error messages
    NAME_PATTERN: "a name is up to 63 lower-case letters, digits, '.', '_' and '-', and begins with a letter or digit",
    ALIAS_PATTERN: "an alias is up to 63 lower-case letters, digits, '.', '_' and '-', and begins with a letter",
}
_WHERE = ("stage", "op", "tensor", "hint")


def problem_response(error: OctetError, scope: Scope) -> Response:
    """Returns the response to a request that failed with `error`."""
    headers = {"retry-after": retry_after(error)} if may_be_retried(error) else {}
    if isinstance(error, errors.Unauthorized):
        headers["www-authenticate"] = "Bearer"  # required by RFC 9110
    members = {name: value for name, value in error.to_json().items() if name in _WHERE}
    return _respond(scope, status_of(error), error.code, title_of(type(error)), error.message, members, headers)


def retry_after(error: OctetError) -> str:
    """Returns the value of `Retry-After` in whole seconds. It is at least 1, because 0 would let clients retry without
    a pause.
    """
    return str(max(1, ceil(error.retry_after_s or 0)))


def unexpected_response(exception: BaseException, scope: Scope) -> Response:
    """Returns the response to a request that an unexpected exception ended. The exception is only logged, and the
    client gets no details.
    """
    if isinstance(exception, OSError) and exception.errno in (errno.ENOSPC, errno.EDQUOT):
        return problem_response(errors.StorageFull(), scope)
    if isinstance(exception, MemoryError):
        _logger.error("request %s: %s", request_id(scope), exception)
        return problem_response(no_memory(exception), scope)
    _logger.error("request %s failed", request_id(scope), exc_info=exception)
    detail = "The server failed unexpectedly."
    hint = f"see the server's log for request {request_id(scope)}"
    return _respond(scope, 500, "internal_error", "Internal error.", detail, {"hint": hint})


def request_id(scope: Scope) -> str:
    """Returns the id that `RequestContext` gave the request."""
    return str(scope.get("octet.request_id", ""))


def install(app: FastAPI) -> None:
    """Makes `app` respond to every error with a problem document."""

    async def octet_error(request: Request, exception: Exception) -> Response:
        assert isinstance(exception, OctetError)
        response = problem_response(exception, request.scope)
        if response.status_code == 500:
            _logger.error("request %s failed", request_id(request.scope), exc_info=exception)
        return response

    async def invalid_request(request: Request, exception: Exception) -> Response:
        assert isinstance(exception, RequestValidationError)
        found = [_finding(finding) for finding in exception.errors()]
        detail = "; ".join(f"{finding['location']}: {finding['detail']}" for finding in found)
        kind = errors.InvalidInput
        return _respond(request.scope, 400, kind.code, title_of(kind), detail, {"errors": found})

    async def http_error(request: Request, exception: Exception) -> Response:
        assert isinstance(exception, HTTPException)
        phrase = HTTPStatus(exception.status_code).phrase
        code = phrase.lower().replace(" ", "_").replace("-", "_")
        detail = exception.detail if exception.detail != phrase else _routing_detail(exception.status_code, request)
        headers = {name.lower(): value for name, value in (exception.headers or {}).items()}
        if exception.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            # `_allowed` finds only paths in the OpenAPI document, which does not contain the page's paths.
            headers["allow"] = _allowed(app, request.url.path) or headers["allow"]
        return _respond(request.scope, exception.status_code, code, f"{phrase}.", detail, {}, headers)

    app.add_exception_handler(OctetError, octet_error)
    app.add_exception_handler(RequestValidationError, invalid_request)
    app.add_exception_handler(HTTPException, http_error)


def _respond(
    scope: Scope,
    status: int,
    code: str,
    title: str,
    detail: str,
    members: Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
) -> Response:
    if isinstance(members.get("hint"), str):
        members = {**members, "hint": shorten_names(members["hint"])}
    body = document(status, code, title, shorten_names(detail), members, scope.get("path", ""), request_id(scope))
    return Response(body, status, dict(headers or {}), MEDIA_TYPE)


def _finding(finding: Mapping[str, Any]) -> dict[str, str]:
    location: Sequence[Any] = finding["loc"]
    pattern = finding.get("ctx", {}).get("pattern")
    detail = _PATTERNS.get(str(pattern)) or str(finding["msg"]).removeprefix("Value error, ")
    return {"location": ".".join(str(part) for part in location), "detail": detail}


def _allowed(app: FastAPI, path: str) -> str:
    """Returns the methods of a path. Several routes may share a path, and Starlette lists only the methods of the
    first.
    """
    items = [item for template, item in app.openapi()["paths"].items() if compile_path(template)[0].match(path)]
    return ", ".join(sorted({method.upper() for item in items for method in item if method in _METHODS}))


def _routing_detail(status: int, request: Request) -> str:
    if status == HTTPStatus.NOT_FOUND:
        return f"there is nothing at {request.url.path}"
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        return f"{request.url.path} does not accept {request.method}"
    return HTTPStatus(status).phrase
