"""Schemas of API keys and of the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from service.api.control.wire.base import Wire
from service.core.access.key import Scope
from service.core.access.tenant import PATTERN


class Key(Wire):
    """An API key, without its secret."""

    id: str = Field(description="The key's id, its second part: `octet_ID_…`. It is not secret.")
    name: str
    scopes: list[Scope]
    requests_per_s: float | None
    requests_per_day: int | None = Field(description="The quota per day, from midnight to midnight UTC.")
    tenant: str = Field(
        "",
        description="The tenant whose models the key gives access to. An empty string means the operator, with "
        "access to all models.",
    )
    created_at: datetime
    revoked_at: datetime | None


class Keys(Wire):
    keys: list[Key]


class KeyRequest(Wire):
    name: str = Field(min_length=1, max_length=63, description="A name, for people to read.", examples=["camera 7"])
    scopes: list[Scope] = Field(min_length=1, max_length=16, description="The scopes; `admin` includes all others.")
    requests_per_s: float | None = Field(None, gt=0, le=1e9, description="The rate limit; by default there is none.")
    requests_per_day: int | None = Field(None, gt=0, le=10**12)
    tenant: str = Field(
        "",
        pattern=f"^$|{PATTERN}",
        description="The tenant whose models the key gives access to. A tenant's key can create keys only for the "
        "same tenant.",
    )


class NewKey(Key):
    key: str = Field(description="The key to send as `Authorization: Bearer …`. It is shown only in this response.")


class Audit(Wire):
    entries: list[dict[str, Any]] = Field(
        description="The entries. Each has `at`, `who` (the id of a key, `anybody` if no key is required, or "
        "`local:USER`), `action`, the object of the action, and the `request_id`."
    )
