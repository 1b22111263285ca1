"""The front's answers to requests that it refuses: rendered once for each address, completed for each request."""

from __future__ import annotations

from starlette.types import Scope

from service.api.oip.front.exchange import Headers, head_of_answer
from service.api.problems import problem_response
from service.core.errors import DeadlinePassed, OctetError
from service.native import Slot
from service.workers.inference import queue_full

_REQUEST_ID = "\ue001"  # in the document, while it is rendered: of a private use area, so no part of a path
_ERRORS: dict[str, OctetError] = {"queue_full": queue_full(1.0), "late": DeadlinePassed()}
_VALUES = {b"content-length": Slot.CONTENT_LENGTH, b"date": Slot.DATE, b"retry-after": Slot.RETRY_AFTER}


def refusals(path: str, default_headers: Headers) -> dict[str, tuple[int, bytes]]:
    """By kind, as `service.native.Problem` names them: the status, and the answer with its slots.

    Args:
        path: of the requests.
        default_headers: of every answer of the server.
    """
    scope: Scope = {"path": path, "octet.request_id": _REQUEST_ID}
    found = {}
    for kind, error in _ERRORS.items():
        response = problem_response(error, scope)
        headers = [*default_headers, *response.raw_headers, (b"x-request-id", Slot.REQUEST_ID.value)]
        head = head_of_answer(
            response.status_code, [(name, getattr(_VALUES.get(name), "value", value)) for name, value in headers]
        )
        body = bytes(response.body).replace(_REQUEST_ID.encode(), Slot.REQUEST_ID.value)
        found[kind] = response.status_code, head + body
    return found
