"""What lines of the log say of the request that they belong to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from service.api.tracing import Trace

# https://www.w3.org/TR/trace-context/#traceparent-header
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?P<trace>[0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


def about_request(id: str, traceparent: str, trace: Trace | None, model: str = "") -> dict[str, str]:
    """Its id, its trace, be that ours or the client's, and its model: what of it there is."""
    sent = _TRACEPARENT.fullmatch(traceparent)
    trace_id = trace.trace_id if trace is not None else sent["trace"] if sent else ""
    found = {"request_id": id, "trace_id": trace_id, "model": model}
    return {name: value for name, value in found.items() if value}
