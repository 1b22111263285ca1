"""References to content of a registry: `oci://HOST[:PORT]/REPOSITORY[:TAG][@DIGEST]`.

https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md#pulling-manifests
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address

from service.core.digest import Digest, parse_digest
from service.core.errors import InvalidInput

SCHEME = "oci://"
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:.]{{2,45}}\])(?::[0-9]{{1,5}})?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_FORM = re.compile(
    rf"oci://(?P<host>{_HOST})/(?P<repository>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_MOST_CHARACTERS = 512


@dataclass(frozen=True)
class Reference:
    """A parsed reference.

    Attributes:
        host: the name of the registry's host, with the port if one is given.
        tag: the tag in the repository; None if only a digest is given.
        digest: the digest that the content must have; None if any is accepted.
    """

    host: str
    repository: str
    tag: str | None
    digest: Digest | None = None

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{SCHEME}{self.host}/{self.repository}{tag}" + (f"@{self.digest}" if self.digest else "")

    @property
    def name(self) -> str:
        """The digest or tag to request from the registry; the digest, if both are given."""
        return self.digest or self.tag or "latest"

    @property
    def model(self) -> str:
        """The name of a model that is served from this reference: the repository's last part."""
        return self.repository.rpartition("/")[2]

    @property
    def is_loopback(self) -> bool:
        return is_loopback(re.sub(r":[0-9]{1,5}$", "", self.host))


def parse_reference(text: str) -> Reference:
    """Parses a reference. The tag is `latest` if neither a tag nor a digest is given. Raises `InvalidInput`."""
    match = _FORM.fullmatch(text) if len(text) <= _MOST_CHARACTERS else None
    if match is None:
        raise InvalidInput(
            f"{text[:_MOST_CHARACTERS]!r} is not a valid reference", hint="oci://HOST[:PORT]/REPOSITORY[:TAG]"
        )
    digest = parse_digest(match["digest"]) if match["digest"] else None
    return Reference(match["host"], match["repository"], match["tag"] or (None if digest else "latest"), digest)


def is_loopback(host: str) -> bool:
    """Returns true if the name itself denotes this machine, independent of any name server."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
