"""The one mapper from errors to gRPC: a status, a sentence, and trailers for programs.

`octet-code` is the stable code of the error (`docs/reference/errors.md`); `grpc-retry-pushback-ms` tells clients that
retry by gRPC's rules when to do so.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NoReturn

from google.protobuf.message import DecodeError
from grpc import StatusCode
from grpc.aio import ServicerContext

from service.api.access.audit import asking
from service.api.problems import may_be_retried, no_memory, retry_after
from service.core import errors
from service.core.errors import InvalidInput, OctetError

_logger = logging.getLogger(__name__)

# The nearest class in an error's line of descent decides, as in `service.api.problems`. What no repetition mends is
# none of the codes that clients repeat: a body that is too large is no RESOURCE_EXHAUSTED.
STATUS: Mapping[type[OctetError], StatusCode] = {
    OctetError: StatusCode.INTERNAL,
    errors.InvalidInput: StatusCode.INVALID_ARGUMENT,
    errors.Unauthorized: StatusCode.UNAUTHENTICATED,
    errors.Forbidden: StatusCode.PERMISSION_DENIED,
    errors.NotFound: StatusCode.NOT_FOUND,
    errors.Conflict: StatusCode.ALREADY_EXISTS,
    errors.TooLarge: StatusCode.INVALID_ARGUMENT,
    errors.UnsupportedFormat: StatusCode.INVALID_ARGUMENT,
    errors.Unsupported: StatusCode.UNIMPLEMENTED,
    errors.QueueFull: StatusCode.RESOURCE_EXHAUSTED,
    errors.RateLimited: StatusCode.RESOURCE_EXHAUSTED,
    errors.CorruptBlob: StatusCode.DATA_LOSS,
    errors.SandboxUnavailable: StatusCode.UNAVAILABLE,
    errors.NotReady: StatusCode.UNAVAILABLE,
    errors.DeadlinePassed: StatusCode.DEADLINE_EXCEEDED,
    errors.StorageFull: StatusCode.RESOURCE_EXHAUSTED,
}
_UNEXPECTED = "The server failed in a way that it did not foresee; its log says more."


def status_of(error: OctetError) -> StatusCode:
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


async def abort(context: ServicerContext, exception: Exception) -> NoReturn:
    """Ends the call with what `exception` means; of one that was not foreseen only the log tells."""
    error = understood(exception)
    if error is None:
        _logger.error("a gRPC request failed", exc_info=exception)
        await context.abort(StatusCode.INTERNAL, _UNEXPECTED, identified())
        raise AssertionError("abort raises")
    code = status_of(error)
    trailers = [*identified(), ("octet-code", error.code)]
    if may_be_retried(error):
        trailers.append(("grpc-retry-pushback-ms", str(1000 * int(retry_after(error)))))
    await context.abort(code, _sentence(error), tuple(trailers))
    raise AssertionError("abort raises")


def request_id() -> str:
    """The id of the current call, the client's own or ours; empty if the call was not admitted."""
    found = asking.get()
    return found[1] if found else ""


def identified() -> tuple[tuple[str, str], ...]:
    """The trailer that says it."""
    found = request_id()
    return (("x-request-id", found),) if found else ()


def understood(exception: Exception) -> OctetError | None:
    """`exception` as an error that a client may see; None for one that was not foreseen."""
    if isinstance(exception, DecodeError):
        return InvalidInput("the message is not a well-formed one of its type")
    if isinstance(exception, MemoryError):
        return no_memory(exception)
    return exception if isinstance(exception, OctetError) else None


def _sentence(error: OctetError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message
