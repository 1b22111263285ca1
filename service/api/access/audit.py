"""The audit log: who changed what, and when. Entries are only ever appended."""

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
"""The caller's id on a worker for requests that its cluster's API sent. The API has already admitted and logged them.
No key has this id.
"""

caller: ContextVar[tuple[str, str] | None] = ContextVar("caller", default=None)
"""The caller of the current request (a key's id) and the request's id. None if a command on this machine makes the
change.

The guard that admits a request sets it.
"""


class AuditStore(Protocol):
    """Entries in the order in which they were added. Any number of processes may add entries."""

    def add(self, id: str, tenant: str, entry: Mapping[str, Any]) -> None:
        """Adds an entry, unless one with this id was added before. Raises an `OctetError` or an `OSError`."""

    def last(self, count: int, tenant: str | None = None) -> list[dict[str, Any]]:
        """Returns the newest `count` entries of one tenant, or of all tenants, newest first."""


class AuditLog:
    """Records who did what, on which replica."""

    def __init__(self, store: AuditStore, clock: Clock | None = None, replica: str = "") -> None:
        """`replica` is the name of this replica; by default the machine's host name."""
        self._store, self._clock = store, clock or SystemClock()
        self._replica = replica or socket.gethostname()

    def note(self, action: str, **what: Any) -> None:
        """Records that `action` was done. A worker records nothing for a request that its API forwarded, because the
        API records the action itself.

        If the entry cannot be written, it is logged instead. The request does not fail, because the action is already
        done.
        """
        who, request = caller.get() or (f"local:{getpass.getuser()}", None)
        if who == CLUSTER:
            return
        at = self._clock.now().isoformat()
        entry = {"at": at, "who": who, "action": action, **what, "request_id": request, "replica": self._replica}
        try:
            self._store.add(uuid.uuid4().hex, tenants.tenant.get(), entry)
        except (OSError, OctetError) as error:
            _logger.error("the audit log cannot be written (%s): %s", error, json.dumps(entry, ensure_ascii=False))

    def last(self, count: int, tenant: str | None = None) -> list[dict[str, Any]]:
        """See `AuditStore.last`."""
        return self._store.last(count, tenant)


class AuditFile:
    """An `AuditStore` in a file, with one JSON object per line.

    On a single machine the audit log is a file rather than a table. A table would be lost with the database, and every
    process that writes to the database could change it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, id: str, tenant: str, entry: Mapping[str, Any]) -> None:
        whose = {"tenant": tenant} if tenant else {}
        self._append(json.dumps({**entry, **whose}, ensure_ascii=False).encode())

    def last(self, count: int, tenant: str | None = None) -> list[dict[str, Any]]:
        """Returns the last entries. Skips lines that a power failure left incomplete."""
        try:
            with self._path.open("rb") as file:
                if tenant is None:
                    lines = deque(file, count)
                    return [entry for entry in map(_parsed, reversed(lines)) if entry is not None]
                entries = (entry for entry in map(_parsed, file) if entry and entry.get("tenant", "") == tenant)
                return list(reversed(deque(entries, count)))
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
