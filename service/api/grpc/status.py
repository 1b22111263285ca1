"""Maps errors to gRPC status codes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from service.core import errors
from service.core.errors import OctetError


class StatusCode(IntEnum):
    """https://grpc.github.io/grpc/core/md_doc_statuscodes.html"""

    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


# The nearest class in an error's method resolution order decides, as in `service.api.problems`. An error that no
# retry can cure must not have a status that clients retry, so a body that is too large is not RESOURCE_EXHAUSTED.
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
    errors.TenantFull: StatusCode.RESOURCE_EXHAUSTED,
}


def status_of(error: OctetError) -> StatusCode:
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
