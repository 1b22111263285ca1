"""Web pages of other sites, from which a browser lets requests go to any server that it reaches, on this machine too.

Where a key is required, such a page has none. Where no key is required, the browser's headers decide:

- *Where it comes from.* `Sec-Fetch-Site`, which no page can set; where it is missing (older browsers, plain HTTP),
  `Origin` and `Host` have to name the same. What changes nothing is let through: no page can read the answer. The rule
  is that of Go's `net/http.CrossOriginProtection`; other clients than browsers send neither header.
- *Whom it is for.* A name of a stranger's that leads to this machine (DNS rebinding) makes his page one of the same
  origin. So a server that only this machine reaches is asked by this machine's names. One that was told to ask nobody
  is not particular: what stands in front of it may pass any name on.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

from service.core.errors import CrossSite, ForeignHost
from service.core.settings import Auth, Settings

_CHANGE_NOTHING = {"GET", "HEAD", "OPTIONS"}
_OWN = {b"same-origin", b"none"}  # `none`: a person typed the address
_KNOWN = {b"host", b"origin", b"sec-fetch-site"}


class Sites:
    """Checks requests for which no key is required."""

    def __init__(self, settings: Settings) -> None:
        self._host = settings.host.lower().encode()
        self._is_particular = settings.auth is not Auth.OFF

    def check(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """
        Args:
            headers: names are in lower case.

        Raises:
            CrossSite: it comes from a page of another site, and may change something.
            ForeignHost: it is for a name that is none of this machine's.
        """
        said = {name: value for name, value in headers if name in _KNOWN}
        host = said.get(b"host", b"").lower()
        if self._is_particular and host and not is_local(host) and _name(host) != self._host:
            raise ForeignHost(
                f"this server is on {self._host.decode()}, and the request is for {host.decode('latin-1')!r}",
                hint="behind a proxy, create an API key (octet keys create), or turn keys off: OCTET_AUTH=off",
            )
        if method not in _CHANGE_NOTHING and len(said) > 1 and not _is_own(said, host):
            raise CrossSite(
                "a page of another site sent this, and may not change anything here",
                hint="open this server's own page, or use an API key: octet keys create makes one",
            )


def _is_own(said: dict[bytes, bytes], host: bytes) -> bool:
    """Whether a browser's request comes from a page of this server, as far as it says."""
    site = said.get(b"sec-fetch-site")
    if site is not None:
        return site in _OWN
    origin = said.get(b"origin")
    return origin is None or origin.lower().partition(b"://")[2] == host


@lru_cache(64)
def is_local(host: bytes) -> bool:
    """Whether a `Host` is a name or an address that only ever leads to the machine itself (RFC 6761, RFC 1122)."""
    name = _name(host).decode("latin-1")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _name(host: bytes) -> bytes:
    """Without the port."""
    name, _, port = host.rpartition(b":")
    return name if name and port.isdigit() else host
