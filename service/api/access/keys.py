"""The file of the keys: what `octet keys` and `/api/v1/keys` write, and every server that shares it reads.

A file, and no table: it has to be there when the database is lost, or nobody could do anything; whoever starts a server
makes the first key without one; and a cluster can mount it. Nothing in it gives access.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from service.api.access.audit import AuditLog
from service.cache.durable import locked, replace_file
from service.core.clock import Clock, SystemClock
from service.core.errors import Conflict, InvalidInput, NotFound
from service.core.key import Key, Limits, Scope, key_from_json, new_key
from service.core.settings import Settings

_logger = logging.getLogger(__name__)

Keys = Mapping[str, Key]


class KeyFile:
    """The keys, by id, in the order in which they were made. Safe between threads and processes.

    Every change of one is noted in the audit log.
    """

    def __init__(self, path: Path, audit: AuditLog, clock: Clock | None = None) -> None:
        self._path, self._audit, self._clock = path, audit, clock or SystemClock()
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

    def create(self, name: str, scopes: Iterable[Scope], limits: Limits = Limits()) -> tuple[Key, str]:  # noqa: B008
        """A new key, and its text, which is shown once.

        Raises:
            InvalidInput: its name or scopes are none.
            Conflict: the file cannot be written.
        """
        key, text = new_key(name, scopes, limits, self._clock.now())
        self._change(lambda known: {**known, key.id: key})
        self._audit.note("create_key", key=key.id, name=key.name, scopes=sorted(key.scopes))
        return key, text

    def revoke(self, id: str) -> Key:
        """The key, which opens nothing any more; one that was revoked before stays as it is.

        Raises:
            NotFound: there is none.
            Conflict: the file cannot be written.
        """

        def change(known: Keys) -> Keys:
            if id not in known:
                raise NotFound(f"there is no key {id!r}", hint="octet keys list shows them")
            key = known[id]
            return {**known, id: replace(key, revoked_at=key.revoked_at or self._clock.now())}

        key = self._change(change)[id]
        self._audit.note("revoke_key", key=key.id, name=key.name)
        return key

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


def key_file(settings: Settings, clock: Clock | None = None) -> KeyFile:
    return KeyFile(settings.file_of_keys, AuditLog(settings.audit_file, clock), clock)


def _parsed(data: bytes) -> Keys:
    return {id: key_from_json(id, members) for id, members in json.loads(data).items()}
