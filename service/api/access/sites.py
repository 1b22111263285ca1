"""Protection against web pages of other sites. A browser lets any page send requests to a server that the browser can
reach, including one on its own machine.

If a key is required, requests of such a page are refused, because the page does not have the key. If no key is
required, the browser's headers decide two questions:

- *Where does the request come from?* The header `Sec-Fetch-Site`, which no page can set, contains the answer. If it is
  missing (older browsers, plain HTTP), `Origin` and `Host` must agree. Requests that change nothing are admitted,
  because the page cannot read the response. This is the rule of Go's `net/http.CrossOriginProtection`. Clients other
  than browsers send neither header. Pages of an origin that `cors_origins` lists by name count as this server's own;
  `*` lists none.
- *Which host does the request name?* With DNS rebinding, an attacker's host name resolves to this machine, so the
  browser treats the attacker's page as same-origin. Therefore a server that only this machine can reach accepts only
  local names. With `auth` off, such a server accepts any name, because a proxy in front of it may pass on any name.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

from service.core.access.origins import EVERY
from service.core.errors import CrossSite, ForeignHost
from service.core.settings import Auth, Settings

_CHANGE_NOTHING = {"GET", "HEAD", "OPTIONS"}
_SAME_SITE = {b"same-origin", b"none"}  # values of Sec-Fetch-Site; `none`: the user typed the address
_BROWSER_HEADERS = {b"host", b"origin", b"sec-fetch-site"}


class Sites:
    """Checks requests for which no key is required."""

    def __init__(self, settings: Settings) -> None:
        self._host = settings.host.lower().encode()
        self._checks_host = settings.auth is not Auth.OFF
        self._origins = {each.encode() for each in settings.origins if each != EVERY}

    def check(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raises an error for a request that a page of another site may have sent.
        Args:
            headers: names in lower case.

        Raises:
            CrossSite: a page of another site sent the request, and its method may change something.
            ForeignHost: the Host header is not a name of this machine.
        """
        sent = {name: value for name, value in headers if name in _BROWSER_HEADERS}
        host = sent.get(b"host", b"").lower()
        if self._checks_host and host and not is_local(host) and _name(host) != self._host:
            raise ForeignHost(
                f"the request is for host {host.decode('latin-1')!r}, but this server is on {self._host.decode()}",
                hint="behind a proxy, create an API key (octet keys create), or turn keys off: OCTET_AUTH=off",
            )
        if method in _CHANGE_NOTHING or sent.get(b"origin") in self._origins:
            return
        if len(sent) > 1 and not _is_same_site(sent, host):
            raise CrossSite(
                "a web page of another site sent this request, and may not change anything here",
                hint="add the page's origin to the setting cors_origins, or use an API key: octet keys create NAME",
            )


def _is_same_site(sent: dict[bytes, bytes], host: bytes) -> bool:
    """Returns true if the headers show that a page of this server sent the request, or if the headers do not show which
    page sent the request.
    """
    site = sent.get(b"sec-fetch-site")
    if site is not None:
        return site in _SAME_SITE
    origin = sent.get(b"origin")
    return origin is None or origin.lower().partition(b"://")[2] == host


@lru_cache(64)
def is_local(host: bytes) -> bool:
    """Returns true if a `Host` is a name or address that always means the machine itself (RFC 6761, RFC 1122)."""
    name = _name(host).decode("latin-1")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _name(host: bytes) -> bytes:
    """Returns the host without its port."""
    name, _, port = host.rpartition(b":")
    return name if name and port.isdigit() else host
