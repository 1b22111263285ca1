"""The audit log of changes: what was changed, by whom and when. It is only ever added to."""

from __future__ import annotations

import fcntl
import getpass
import json
import logging
import os
import socket
import uuid
from collections import deque
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

from service.api.access import tenants
from service.cache.durable import storage_errors, write_all
from service.core.clock import Clock, SystemClock
from service.core.errors import OctetError

_logger = logging.getLogger(__name__)

CLUSTER = "~cluster"
"""Who asks a worker: the API of its cluster, which has admitted the request, and noted it. No key has such an id."""

asking: ContextVar[tuple[str, str] | None] = ContextVar("asking", default=None)
"""Whose request is answered (the id of a key), and its own id; None where a person at this machine asks.

Set by the guard that admits the request.
"""


class AuditStore(Protocol):
    """Entries, in the order in which they came. Any number of processes may add some."""

    def add(self, id: str, tenant: str, entry: Mapping[str, Any]) -> None:
        """Raises an `OctetError` or an `OSError`. An entry whose id was added before is not added again."""

    def last(self, count: int, tenant: str | None = None) -> list[dict[str, Any]]:
        """The newest `count` entries, the newest first; of one tenant, or of all."""


class AuditLog:
    """Notes who did what, on which replica."""

    def __init__(self, store: AuditStore, clock: Clock | None = None, replica: str = "") -> None:
        """`replica`: the name of this one; by default the machine's."""
        self._store, self._clock = store, clock or SystemClock()
        self._replica = replica or socket.gethostname()

    def note(self, action: str, **what: Any) -> None:
        """Adds that `action` was done, unless a worker did it for its API, which notes it.

        It was, so a failure to write it is no error of the request: the log has it.
        """
        who, request = asking.get() or (f"local:{getpass.getuser()}", None)
        if who == CLUSTER:
            return
        at = self._clock.now().isoformat()
        entry = {"at": at, "who": who, "action": action, **what, "request_id": request, "replica": self._replica}
        try:
            self._store.add(uuid.uuid4().hex, tenants.tenant.get(), entry)
        except (OSError, OctetError) as error:
            _logger.error("the audit log cannot be written (%s): %s", error, json.dumps(entry, ensure_ascii=False))

    def last(self, count: int, tenant: str | None = None) -> list[dict[str, Any]]:
        """As `AuditStore.last`."""
        return self._store.last(count, tenant)


class AuditFile:
    """See `AuditStore`: one JSON object a line.

    On one machine it is not a table: tables are lost with the database, and every process that writes to the database
    can change them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, id: str, tenant: str, entry: Mapping[str, Any]) -> None:
        whose = {"tenant": tenant} if tenant else {}
        self._append(json.dumps({**entry, **whose}, ensure_ascii=False).encode())

    def last(self, count: int, tenant: str | None = None) -> list[dict[str, Any]]:
        """A line that a power cut tore is left out."""
        try:
            with self._path.open("rb") as file:
                if tenant is None:
                    lines = deque(file, count)
                    return [entry for entry in map(_parsed, reversed(lines)) if entry is not None]
                its = (entry for entry in map(_parsed, file) if entry and entry.get("tenant", "") == tenant)
                return list(reversed(deque(its, count)))
        except FileNotFoundError:
            return []

    def _append(self, line: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with storage_errors():
            descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                size_bytes = os.fstat(descriptor).st_size
                torn = size_bytes and os.pread(descriptor, 1, size_bytes - 1) != b"\n"
                write_all(descriptor, (b"\n" if torn else b"") + line + b"\n")
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
