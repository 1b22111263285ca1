"""The addresses of the tenants' data planes, and the keys that they and the public data plane use to authenticate each
other.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from service.core.settings import Settings

_OPERATOR, _FRONT = "~operator", "~front"  # cannot be a tenant's name, which has no ~


@dataclass(frozen=True)
class Addresses:
    """The addresses and keys that all processes derive from one secret of the supervisor.

    The addresses are abstract sockets, which have no file. Without the secret, they cannot be guessed.
    """

    secret: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)

    def control(self, tenant: str) -> bytes:
        """Returns the address of the Unix socket on which a tenant's data plane accepts the control plane's
        connection.
        """
        return self._name("control", tenant)

    def http(self, tenant: str) -> bytes:
        """Returns the address of the Unix socket on which a tenant's data plane accepts requests."""
        return self._name("http", tenant)

    def preprocess(self, tenant: str) -> bytes:
        """Returns the address of the Unix socket on which a tenant's data plane accepts its preprocessing process."""
        return self._name("preprocess", tenant)

    def key(self, tenant: str) -> str:
        """Returns the key that the public data plane sends with each request. The tenant's data plane learns the key,
        so each tenant has a different one.
        """
        return self._digest("key", tenant)

    def _name(self, what: str, tenant: str) -> bytes:
        return b"\0octet-" + self._digest(what, tenant)[:32].encode()

    def _digest(self, what: str, tenant: str) -> str:
        return sha256(f"{self.secret} {what} {tenant}".encode()).hexdigest()


def folder_of(settings: Settings, tenant: str) -> Path:
    """Returns the folder that a tenant's data plane may read; an empty name means the operator's models."""
    return settings.planes_dir / (tenant or _OPERATOR)


def folder_of_front(settings: Settings) -> Path:
    """Returns the folder that the public data plane may read, which is empty."""
    return settings.planes_dir / _FRONT


def display_name(tenant: str) -> str:
    """Returns how a message names the tenant."""
    return f"tenant {tenant}" if tenant else "the operator"
