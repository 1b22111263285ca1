"""Request ids, and the facts about a request that its log lines contain."""

from __future__ import annotations

import re
import uuid

# https://www.w3.org/TR/trace-context/#traceparent-header
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?P<trace>[0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_ACCEPTABLE_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


def id_of(given: str) -> str:
    """Returns the client's own id (`X-Request-Id`) if it is safe in a header and a log line; else a new one."""
    return given if _ACCEPTABLE_ID.fullmatch(given) else uuid.uuid4().hex


def about_request(id: str, traceparent: str, model: str = "") -> dict[str, str]:
    """Returns a request's id, the client's trace id, and its model, as far as they exist."""
    sent = _TRACEPARENT.fullmatch(traceparent)
    found = {"request_id": id, "trace_id": sent["trace"] if sent else "", "model": model}
    return {name: value for name, value in found.items() if value}
