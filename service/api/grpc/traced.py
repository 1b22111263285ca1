"""A trace around each `ModelInfer`."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from grpc import StatusCode
from grpc.aio import ServicerContext

from service.api.grpc.status import request_id, status_of, understood

if TYPE_CHECKING:
    from service.api.ops.tracing import Trace, Tracing

_SERVICE, _METHOD = "inference.GRPCInferenceService", "ModelInfer"
# https://opentelemetry.io/docs/specs/semconv/rpc/grpc: those that count as the server's failures.
_FAILURES = (
    *(StatusCode.UNKNOWN, StatusCode.DEADLINE_EXCEEDED, StatusCode.UNIMPLEMENTED),
    *(StatusCode.INTERNAL, StatusCode.UNAVAILABLE, StatusCode.DATA_LOSS),
)


@contextmanager
def traced(tracing: Tracing, context: ServicerContext) -> Iterator[Trace | None]:
    """The trace of what is answered in a `with` block; None if it is not among those that are traced."""
    attributes = {
        "rpc.system": "grpc",
        "rpc.service": _SERVICE,
        "rpc.method": _METHOD,
        "octet.request_id": request_id(),
    }
    trace = tracing.begin(f"{_SERVICE}/{_METHOD}", context.invocation_metadata() or (), attributes)
    code = StatusCode.INTERNAL
    try:
        yield trace
        code = StatusCode.OK
    except CancelledError:
        code = StatusCode.CANCELLED
        raise
    except Exception as exception:
        if (error := understood(exception)) is not None:
            code = status_of(error)
        raise
    finally:
        if trace is not None:
            trace.end({"rpc.grpc.status_code": code.value[0]}, has_failed=code in _FAILURES)
