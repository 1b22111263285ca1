"""The web origins whose pages may use a server from a browser."""

from __future__ import annotations

import re

EVERY = "*"
# The form in which browsers write an origin in the header `Origin`: https://html.spec.whatwg.org/#origin
_ORIGIN = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(?P<port>[1-9][0-9]{0,4}))?")
_USUAL_PORTS = {"http": "80", "https": "443"}
_FORM = "an origin has the form https://app.example or http://localhost:5173"


def parse_origins(text: str) -> tuple[str, ...]:
    """Returns the origins in a list that is separated by commas; `*` means every origin.

    Raises:
        ValueError: an element does not have the form in which browsers send an origin, so that it would match none.
    """
    origins = tuple(each.strip() for each in text.split(",") if each.strip())
    for origin in origins:
        if origin == EVERY:
            continue
        found = _ORIGIN.fullmatch(origin)
        if found is None:
            raise ValueError(f"{origin!r} is not an origin: {_FORM}, in lower case, without a path")
        if found["port"] and found["port"] == _USUAL_PORTS.get(found["scheme"]):
            raise ValueError(f"{origin!r} has the port that its scheme implies, and browsers leave this port out")
    return origins
