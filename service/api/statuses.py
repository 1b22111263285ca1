"""The HTTP status of each error. This module must not import the web framework, because code that runs without a web
framework uses this module for the data plane's responses.
"""

from __future__ import annotations

from collections.abc import Mapping

from service.core import errors
from service.core.errors import OctetError

# The nearest class in an error's method resolution order decides. Same as the table in `core/errors.py`.
STATUS: Mapping[type[OctetError], int] = {
    OctetError: 500,
    errors.InvalidInput: 400,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.TooLarge: 413,
    errors.UnsupportedFormat: 415,
    errors.Unsupported: 422,
    errors.QueueFull: 429,
    errors.RateLimited: 429,
    errors.SandboxUnavailable: 503,
    errors.NotReady: 503,
    errors.DatabaseBusy: 503,
    errors.DataUnusable: 503,
    errors.DeadlinePassed: 504,
    errors.StorageFull: 507,
    errors.TenantFull: 507,
}
_MAY_BE_RETRIED = (errors.QueueFull, errors.RateLimited, errors.NotReady, errors.DatabaseBusy)


def status_of(error: OctetError) -> int:
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def may_be_retried(error: OctetError) -> bool:
    """Returns true if the same request may succeed later without any action by a user."""
    return isinstance(error, _MAY_BE_RETRIED) and not isinstance(error, errors.NotBuilt | errors.DatabaseDamaged)


def no_memory(exception: MemoryError) -> errors.MemoryFull:
    """Returns the error that is sent in place of a `MemoryError`. It contains no details."""
    return errors.MemoryFull(hint="try again later, or send smaller requests")
