"""API keys: what a request has to show, and what that lets it do.

A key reads `octet_ID_SECRET`. The id is no secret: it stands in lists, in the audit log and in messages. Of the whole,
only the SHA-256 is kept. A hash that is slow on purpose protects words that people choose: there are few enough
to try them all. Of 256 random bits there are not, and this one is computed for every request. Nor does it need a salt:
no two keys are the same.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from service.core.errors import InvalidInput

_FORM = re.compile(rb"octet_([a-z0-9]{4,16})_[A-Za-z0-9]{32,128}")
FORM = "that is no API key: octet_, 4 to 16 lower-case letters or digits, _, and 32 or more random letters or digits"
_NAME = re.compile(r"[\w][\w .@-]{0,62}")
_ID_BYTES, _SECRET_BYTES = 6, 32


class Scope(StrEnum):
    """The permissions of a key. A key may have several."""

    PREDICT = "predict"  # predictions, and all that `/v2` tells about models
    READ = "read"  # all that can be looked at but keys and the audit log; changes and predicts nothing
    PUSH = "push"  # models, builds, artifacts, promotions; loading and unloading
    METRICS = "metrics"  # what Prometheus reads
    ADMIN = "admin"  # everything, keys and the audit log too


@dataclass(frozen=True)
class Limits:
    """Rate limit and quota of a key; None: no limit.

    Attributes:
        requests_per_s: on average, and at once as many as in one second, but at least one.
        requests_per_day: from midnight to midnight, UTC.
    """

    requests_per_s: float | None = None
    requests_per_day: int | None = None

    def __post_init__(self) -> None:
        if any(limit is not None and not limit > 0 for limit in (self.requests_per_s, self.requests_per_day)):
            raise InvalidInput("a limit must be a number above 0", hint="to disable a key, revoke it")


@dataclass(frozen=True)
class Key:
    """The stored facts of a key.

    Attributes:
        name: for people.
        digest: the SHA-256 of the key, in hex.
        revoked_at: since when it opens nothing. It stays on record, so that the audit log can be read.
        tenant: whose models it is for; empty: the operator's, which is for all.
    """

    id: str
    name: str
    digest: str
    scopes: frozenset[Scope]
    limits: Limits
    created_at: datetime
    revoked_at: datetime | None = None
    tenant: str = ""

    def allows(self, *scopes: Scope) -> bool:
        """Whether it has one of `scopes`."""
        return Scope.ADMIN in self.scopes or not self.scopes.isdisjoint(scopes)

    def is_key(self, text: bytes) -> bool:
        """Whether `text` is this key; in a time that tells nothing of how much of it is right."""
        return self.revoked_at is None and hmac.compare_digest(_digest(text), self.digest)

    def to_json(self) -> dict[str, Any]:
        """As it is kept: with its digest."""
        return {
            "name": self.name,
            "sha256": self.digest,
            "scopes": sorted(self.scopes),
            "requests_per_s": self.limits.requests_per_s,
            "requests_per_day": self.limits.requests_per_day,
            "created_at": self.created_at.isoformat(),
            "revoked_at": self.revoked_at and self.revoked_at.isoformat(),
            **({"tenant": self.tenant} if self.tenant else {}),
        }


def new_key(name: str, scopes: Iterable[Scope], limits: Limits, at: datetime, tenant: str = "") -> tuple[Key, str]:
    """A key, and its text, which is not stored and known only to the caller.

    Raises:
        InvalidInput: it has no name that can be shown in a line, or no scope.
    """
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"{name!r} is not a valid key name", hint="use up to 63 letters, digits, spaces and .@_-")
    id = secrets.token_hex(_ID_BYTES)
    text = f"octet_{id}_{secrets.token_hex(_SECRET_BYTES)}"
    return replace(key_of(text, name, scopes, limits, at), tenant=tenant), text


def key_of(text: str, name: str, scopes: Iterable[Scope], limits: Limits, at: datetime) -> Key:
    """The stored facts of the key whose text is `text`.

    Raises:
        InvalidInput: it is not of the form of a key, or has no scope.
    """
    id, chosen = id_of(text.encode()), frozenset(scopes)
    if id is None:
        raise InvalidInput(
            FORM,
            hint='echo "octet_mine_$(openssl rand -hex 32)"',
        )
    if not chosen:
        raise InvalidInput("a key without a scope allows nothing", hint=f"scopes: {', '.join(Scope)}")
    return Key(id, name, _digest(text.encode()), chosen, limits, at)


def id_of(text: bytes) -> str | None:
    """The id in a key's text; None if it is not of the form of one."""
    match = _FORM.fullmatch(text)
    return match[1].decode() if match else None


def key_from_json(id: str, members: Mapping[str, Any]) -> Key:
    """Parses the result of `Key.to_json`. Raises `KeyError`, `TypeError` or `ValueError` for anything else."""
    revoked_at = members["revoked_at"]
    return Key(
        id,
        str(members["name"]),
        str(members["sha256"]),
        frozenset(map(Scope, members["scopes"])),
        Limits(members["requests_per_s"], members["requests_per_day"]),
        datetime.fromisoformat(members["created_at"]),
        revoked_at and datetime.fromisoformat(revoked_at),
        str(members.get("tenant", "")),
    )


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
