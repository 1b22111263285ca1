"""A worker's signs of life, from a thread of its own."""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from types import TracebackType

from service.core.target import detect_host
from service.core.worker import Worker, WorkerKind
from service.db import WorkerStore

_logger = logging.getLogger(__name__)


class Presence:
    """A context manager: while it is entered, the table of workers shows this process."""

    def __init__(self, workers: WorkerStore, kind: WorkerKind, every_s: float) -> None:
        now = datetime.now(UTC)
        host = socket.gethostname()
        best = detect_host().best
        id = f"{kind}-{host}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._workers, self._every_s = workers, every_s
        self._worker = Worker(id, kind, host, os.getpid(), best.name if best else None, now, now)
        self._changed, self._ended = threading.Event(), False
        self._thread = threading.Thread(target=self._beat, name="octet-presence", daemon=True)

    @property
    def id(self) -> str:
        return self._worker.id

    def works_on(self, build: str | None) -> None:
        """Shows the build at once."""
        self._worker = replace(self._worker, build=build)
        self._changed.set()

    def __enter__(self) -> Presence:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        self._changed.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._ended:
            self._changed.clear()
            self._try(lambda: self._workers.beat(self._worker))
            if not self._ended:
                self._changed.wait(self._every_s)
        self._try(lambda: self._workers.remove(self._worker.id))

    def _try(self, write: Callable[[], None]) -> None:
        try:
            write()
        except Exception:  # being seen is not worth dying for
            _logger.warning("worker %s could not give a sign of life", self._worker.id, exc_info=True)
