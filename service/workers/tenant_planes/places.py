"""Where the data planes of tenants are reached, and what they and the public one know each other by."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from service.core.settings import Settings

_OPERATOR, _FRONT = "~operator", "~front"  # a tenant's name has no ~


@dataclass(frozen=True)
class Places:
    """All that its processes have to agree on, by one secret of the supervisor's.

    The names are of sockets without a file, and nobody foresees them.
    """

    secret: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)

    def control(self, tenant: str) -> bytes:
        """The name of the Unix socket where a tenant's data plane takes the control plane's connection."""
        return self._name("control", tenant)

    def http(self, tenant: str) -> bytes:
        """Of the one where it takes requests."""
        return self._name("http", tenant)

    def key(self, tenant: str) -> str:
        """What the public data plane shows it with each request: it learns that, so each has another."""
        return self._digest("key", tenant)

    def _name(self, what: str, tenant: str) -> bytes:
        return b"\0octet-" + self._digest(what, tenant)[:32].encode()

    def _digest(self, what: str, tenant: str) -> str:
        return sha256(f"{self.secret} {what} {tenant}".encode()).hexdigest()


def folder_of(settings: Settings, tenant: str) -> Path:
    """What a tenant's data plane may read; of the operator's models where the tenant is empty."""
    return settings.planes_dir / (tenant or _OPERATOR)


def folder_of_front(settings: Settings) -> Path:
    """What the public one may read, and has nothing in it."""
    return settings.planes_dir / _FRONT


def said(tenant: str) -> str:
    """Whose, in messages."""
    return f"tenant {tenant}" if tenant else "the operator"
