"""The audit log of changes: what was changed, by whom and when. Append-only, one JSON object a line."""

from __future__ import annotations

import fcntl
import getpass
import json
import logging
import os
from collections import deque
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from service.cache.durable import storage_errors, write_all
from service.core.clock import Clock, SystemClock
from service.core.errors import OctetError

_logger = logging.getLogger(__name__)

asking: ContextVar[tuple[str, str] | None] = ContextVar("asking", default=None)
"""Whose request is answered (the id of a key), and its own id; None where a person at this machine asks.

Set by the guard that admits the request.
"""


class AuditLog:
    """The file. Any number of processes may write to it.

    It is not a table: tables are lost with the database, and every process that writes to the database can change them.
    """

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self._path, self._clock = path, clock or SystemClock()

    def note(self, action: str, **what: Any) -> None:
        """Adds that `action` was done. It was, so a failure to write it is no error of the request: the log has it."""
        who, request = asking.get() or (f"local:{getpass.getuser()}", None)
        at = self._clock.now().isoformat()
        line = json.dumps({"at": at, "who": who, "action": action, **what, "request_id": request}, ensure_ascii=False)
        try:
            self._append(line.encode())
        except (OSError, OctetError) as error:
            _logger.error("the audit log cannot be written (%s): %s", error, line)

    def last(self, count: int) -> list[dict[str, Any]]:
        """The newest `count` entries, the newest first. A line that a power cut tore is left out."""
        try:
            with self._path.open("rb") as file:
                lines = deque(file, count)
        except FileNotFoundError:
            return []
        return [entry for entry in map(_parsed, reversed(lines)) if entry is not None]

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
