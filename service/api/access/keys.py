"""The API keys, which `octet keys` and `/api/v1/keys` change, and which every server that shares them reads.

On one machine they are in a file rather than a table: they survive the loss of the database, the first key can be
created before a server runs, and a cluster can mount the file. Servers that share a PostgreSQL database use a table
there (`service.db.KeyTable`). Neither the file nor the table contains a key's secret, so reading it gives no access.
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
from service.core.access.key import Key, Limits, Scope, key_from_json, new_key
from service.core.access.tenant import check_tenant
from service.core.clock import Clock, SystemClock
from service.core.errors import Conflict, InvalidInput, NotFound, OctetError
from service.core.system.outage import log_trouble

_logger = logging.getLogger(__name__)

Keys = Mapping[str, Key]


class KeyStore(Protocol):
    """The keys by id, in the order of their creation. Thread-safe and safe between processes."""

    def read(self) -> Keys:
        """Returns the keys. Raises an `OctetError` if they cannot be read now and were never read before."""

    def add(self, key: Key) -> None:
        """Adds a key. Raises `Conflict` if the store is read-only."""

    def revoke(self, id: str, at: datetime) -> Key:
        """Revokes a key, and returns it. A key that is already revoked keeps its time of revocation.

        Raises:
            NotFound: no key has this id.
            Conflict: the store is read-only.
        """


class KeyRing:
    """Creates and revokes keys, and records this in the audit log."""

    def __init__(self, store: KeyStore, audit: AuditLog, clock: Clock | None = None) -> None:
        self._store, self._audit, self._clock = store, audit, clock or SystemClock()

    def read(self) -> Keys:
        """See `KeyStore.read`."""
        return self._store.read()

    def create(
        self,
        name: str,
        scopes: Iterable[Scope],
        limits: Limits = Limits(),  # noqa: B008
        tenant: str = "",
    ) -> tuple[Key, str]:
        """Creates a key. Returns the key and its text, which is not stored.

        Raises:
            InvalidInput: the name, the scopes or the tenant are invalid.
            Conflict: the key cannot be stored.
        """
        key, text = new_key(name, scopes, limits, self._clock.now(), check_tenant(tenant))
        self._store.add(key)
        self._audit.note("create_key", key=key.id, name=key.name, scopes=sorted(key.scopes), **_whose(key))
        return key, text

    def revoke(self, id: str) -> Key:
        """See `KeyStore.revoke`."""
        key = self._store.revoke(id, self._clock.now())
        self._audit.note("revoke_key", key=key.id, name=key.name)
        return key


class KeyFile:
    """A `KeyStore` in a file. Every read checks whether the file has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[tuple[int, ...], Keys] | None = (
            # the file's inode, time and size when it was last read, and the keys that it contained then; None before
            # the first read
            None
        )

    def read(self) -> Keys:
        """Returns the keys in the file; no keys if the file does not exist.

        Raises:
            InvalidInput: the file cannot be read now and was never read before.
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
                raise NotFound(f"there is no key {id!r}", hint="octet keys list shows the keys")
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
                hint="if the file is mounted read-only, change it at its source",
            ) from error
        return keys


class FollowedKeys:
    """A cached copy of the keys in another store, so that no request waits for a database. `refresh` updates it."""

    def __init__(self, store: KeyStore) -> None:
        """Raises the errors of `KeyStore.read`."""
        self._store = store
        self._known = store.read()

    def read(self) -> Keys:
        return self._known

    def refresh(self) -> None:
        """Reads the keys again. If that fails, the cached keys are kept."""
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
