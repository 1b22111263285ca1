"""The preferences of a request, from its header `Prefer` (RFC 7240)."""

from __future__ import annotations

import re

MAX_WAIT_S = 60
RESPOND_ASYNC = "respond-async"


def preferences_in(prefer: str | None) -> dict[str, str]:
    """Returns the values of the preferences by name; the value of a preference without one is empty. The first of
    several preferences with the same name counts.
    """
    found: dict[str, str] = {}
    for each in re.split("[,;]", prefer or ""):  # some clients separate preferences by semicolons
        name, _, value = each.partition("=")
        found.setdefault(name.strip().lower(), value.strip().strip('"'))
    return found


def wait_of(prefer: str | None) -> int | None:
    """Returns the preference `wait` in seconds, at most `MAX_WAIT_S`; None if it is missing or malformed."""
    value = preferences_in(prefer).get("wait", "")
    return min(int(value), MAX_WAIT_S) if value.isascii() and value.isdecimal() else None


def wants_async(prefer: str | None) -> bool:
    """Returns true if the client wants the response at once, with the address at which the result will be."""
    return RESPOND_ASYNC in preferences_in(prefer)
