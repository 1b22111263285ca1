"""The API keys: what `octet keys` and `/api/v1/keys` write, and every server that shares them reads.

On one machine they are a file, and no table: it has to be there when the database is lost, or nobody could do anything;
whoever starts a server makes the first key without one; and a cluster can mount it. Servers that share a PostgreSQL
database share its table instead (`service.db.KeyTable`). Nothing in either gives access.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

from service.api.access.audit import AuditLog
from service.cache.durable import locked, replace_file
from service.core.clock import Clock, SystemClock
from service.core.errors import Conflict, InvalidInput, NotFound, OctetError
from service.core.key import Key, Limits, Scope, key_from_json, new_key
from service.core.outage import log_trouble
from service.core.tenant import check_tenant

_logger = logging.getLogger(__name__)

Keys = Mapping[str, Key]


class KeyStore(Protocol):
    """The keys, by id, in the order in which they were made. Safe between threads and processes."""

    def read(self) -> Keys:
        """Raises an `OctetError` where they cannot be read, and could not before."""

    def add(self, key: Key) -> None:
        """Raises `Conflict`: they cannot be changed."""

    def revoke(self, id: str, at: datetime) -> Key:
        """The key, which opens nothing any more; one that was revoked before stays as it is.

        Raises:
            NotFound: there is none.
            Conflict: they cannot be changed.
        """


class KeyRing:
    """Makes and revokes keys, and notes that in the audit log."""

    def __init__(self, store: KeyStore, audit: AuditLog, clock: Clock | None = None) -> None:
        self._store, self._audit, self._clock = store, audit, clock or SystemClock()

    def read(self) -> Keys:
        """As `KeyStore.read`."""
        return self._store.read()

    def create(
        self,
        name: str,
        scopes: Iterable[Scope],
        limits: Limits = Limits(),  # noqa: B008
        tenant: str = "",
    ) -> tuple[Key, str]:
        """A new key, and its text, which is shown once.

        Raises:
            InvalidInput: its name, scopes or tenant are none.
            Conflict: it cannot be stored.
        """
        key, text = new_key(name, scopes, limits, self._clock.now(), check_tenant(tenant))
        self._store.add(key)
        self._audit.note("create_key", key=key.id, name=key.name, scopes=sorted(key.scopes), **_whose(key))
        return key, text

    def revoke(self, id: str) -> Key:
        """As `KeyStore.revoke`."""
        key = self._store.revoke(id, self._clock.now())
        self._audit.note("revoke_key", key=key.id, name=key.name)
        return key


class KeyFile:
    """See `KeyStore`; one that is looked at again whenever it is read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[tuple[int, ...], Keys] | None = None  # the state of the file, and what it held

    def read(self) -> Keys:
        """The keys in the file; empty if there is no file.

        Raises:
            InvalidInput: it cannot be read, and could not before.
        """
        try:
            status = self._path.stat()
            state = status.st_ino, status.st_mtime_ns, status.st_size
            if self._seen is None or self._seen[0] != state:
                self._seen = state, _parsed(self._path.read_bytes())
        except FileNotFoundError:
            self._seen = None
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"{self._path}, the file of API keys, cannot be read: {error}"
            if self._seen is None:
                raise InvalidInput(message, hint="restore the file that octet keys wrote") from error
            _logger.error("%s; the known keys stay valid", message)
        return self._seen[1]

    def add(self, key: Key) -> None:
        self._change(lambda known: {**known, key.id: key})

    def revoke(self, id: str, at: datetime) -> Key:
        def change(known: Keys) -> Keys:
            if id not in known:
                raise NotFound(f"there is no key {id!r}", hint="octet keys list shows them")
            key = known[id]
            return {**known, id: replace(key, revoked_at=key.revoked_at or at)}

        return self._change(change)[id]

    def _change(self, change: Callable[[Keys], Keys]) -> Keys:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with locked(self._path.parent):
                keys = change(self.read())
                replace_file(self._path, json.dumps({id: key.to_json() for id, key in keys.items()}, indent=1).encode())
        except OSError as error:
            raise Conflict(
                f"{self._path}, the file of API keys, cannot be written: {error.strerror}",
                hint="change it where it is set",
            ) from error
        return keys


class FollowedKeys:
    """Keys that are elsewhere, as they were when they were last looked at: no request waits for a database."""

    def __init__(self, store: KeyStore) -> None:
        """Raises as `KeyStore.read`."""
        self._store = store
        self._known = store.read()

    def read(self) -> Keys:
        return self._known

    def refresh(self) -> None:
        """Looks again; where they cannot be read, those that are known stay valid."""
        try:
            self._known = self._store.read()
        except OctetError as error:
            log_trouble(_logger, error, "the API keys cannot be read; the known keys stay valid")

    def add(self, key: Key) -> None:
        self._store.add(key)
        self._known = {**self._known, key.id: key}

    def revoke(self, id: str, at: datetime) -> Key:
        key = self._store.revoke(id, at)
        self._known = {**self._known, key.id: key}
        return key


def _whose(key: Key) -> dict[str, str]:
    return {"of_tenant": key.tenant} if key.tenant else {}


def _parsed(data: bytes) -> Keys:
    return {id: key_from_json(id, members) for id, members in json.loads(data).items()}
