"""The id of a request, and what lines of the log say of the one that they belong to."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from service.api.ops.tracing import Trace

# https://www.w3.org/TR/trace-context/#traceparent-header
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?P<trace>[0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_ACCEPTABLE_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


def id_of(given: str) -> str:
    """The client's own id (`X-Request-Id`), if it cannot break a header or a line of the log; or else a new one."""
    return given if _ACCEPTABLE_ID.fullmatch(given) else uuid.uuid4().hex


def about_request(id: str, traceparent: str, trace: Trace | None, model: str = "") -> dict[str, str]:
    """Its id, its trace, be that ours or the client's, and its model: what of it there is."""
    sent = _TRACEPARENT.fullmatch(traceparent)
    trace_id = trace.trace_id if trace is not None else sent["trace"] if sent else ""
    found = {"request_id": id, "trace_id": trace_id, "model": model}
    return {name: value for name, value in found.items() if value}
