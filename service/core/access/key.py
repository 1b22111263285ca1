"""API keys: their form, their scopes and limits, and what the server stores of them.

A key has the form `octet_ID_SECRET`. The id is not secret: it appears in lists, in the audit log and in messages. Of
the whole key, only the SHA-256 is stored. Deliberately slow hashes protect passwords, because an attacker can try all
words that people choose. No attacker can try all keys of 256 random bits, and the server computes the hash for every
request, so a fast hash is right here. The hash needs no salt, because no two keys are equal.
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
FORM = (
    "that is not an API key; keys have the form octet_, 4 to 16 lower-case letters or digits, _, and 32 or more random "
    "letters or digits"
)
_NAME = re.compile(r"[\w][\w .@-]{0,62}")
_ID_BYTES, _SECRET_BYTES = 6, 32


class Scope(StrEnum):
    """The permissions of a key. A key may have several."""

    PREDICT = "predict"  # predictions, and the information about models under `/v2`
    READ = "read"  # reading everything except keys and the audit log; no changes, no predictions
    PUSH = "push"  # models, builds, artifacts, promotions; loading and unloading
    METRICS = "metrics"  # the metrics for Prometheus
    ADMIN = "admin"  # everything, including keys and the audit log


@dataclass(frozen=True)
class Limits:
    """The rate limit and the quota of a key; None for no limit.

    Attributes:
        requests_per_s: the average rate. A burst may contain as many requests as one second allows, but at least one.
        requests_per_day: the number of requests from midnight to midnight, UTC.
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
        id: the public part of the key.
        name: a name for people.
        digest: the SHA-256 of the key, in hex.
        revoked_at: the time when the key was revoked. A revoked key is refused, but stays on record, so that its id in
            the audit log can be resolved.
        tenant: the tenant whose models the key gives access to; empty for the operator's keys, which cover all models.
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
        """Returns true if the key has one of `scopes`, or `ADMIN`."""
        return Scope.ADMIN in self.scopes or not self.scopes.isdisjoint(scopes)

    def is_key(self, text: bytes) -> bool:
        """Returns true if `text` is this key's text and the key is not revoked. The comparison takes constant time."""
        return self.revoked_at is None and hmac.compare_digest(_digest(text), self.digest)

    def to_json(self) -> dict[str, Any]:
        """Returns the stored form of the key, which contains its digest."""
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
    """Creates a random key. Returns its stored facts and its text, which is not stored anywhere.

    Raises:
        InvalidInput: `name` is not a valid key name, or `scopes` is empty.
    """
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"{name!r} is not a valid key name", hint="use up to 63 letters, digits, spaces and .@_-")
    id = secrets.token_hex(_ID_BYTES)
    text = f"octet_{id}_{secrets.token_hex(_SECRET_BYTES)}"
    return replace(key_of(text, name, scopes, limits, at), tenant=tenant), text


def key_of(text: str, name: str, scopes: Iterable[Scope], limits: Limits, at: datetime) -> Key:
    """Returns the stored facts of the key whose text is `text`.

    Raises:
        InvalidInput: `text` does not have the form of a key, or `scopes` is empty.
    """
    id, chosen = id_of(text.encode()), frozenset(scopes)
    if id is None:
        raise InvalidInput(
            FORM,
            hint='create one with: echo "octet_mine_$(openssl rand -hex 32)"',
        )
    if not chosen:
        raise InvalidInput("a key without a scope allows nothing", hint=f"scopes: {', '.join(Scope)}")
    return Key(id, name, _digest(text.encode()), chosen, limits, at)


def id_of(text: bytes) -> str | None:
    """Returns the id in a key's text; None if `text` does not have the form of a key."""
    match = _FORM.fullmatch(text)
    return match[1].decode() if match else None


def key_from_json(id: str, members: Mapping[str, Any]) -> Key:
    """Parses the result of `Key.to_json`.

    Raises:
        KeyError, TypeError, ValueError: `members` is not of that form.
    """
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
