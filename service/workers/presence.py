"""Registers a worker in the database and keeps sending its heartbeats from a separate thread."""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from service import __version__
from service.core.cluster.worker import Worker, WorkerKind, WorkerState
from service.core.system.outage import log_trouble
from service.core.target import detect_host
from service.db import WorkerStore

_logger = logging.getLogger(__name__)


class Presence:
    """A context manager that keeps this process listed in the table of workers while it is entered.

    Args:
        offers: fields of `Worker` that describe what this worker offers.

    Attributes:
        is_listed: true once a heartbeat has been written to the table.
    """

    def __init__(self, workers: WorkerStore, kind: WorkerKind, every_s: float, **offers: Any) -> None:
        now = datetime.now(UTC)
        host = socket.gethostname()
        best = detect_host().best
        id = f"{kind}-{host}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._workers, self._every_s = workers, every_s
        fields = {"target": best.name if best else None, "release": __version__, **offers}
        self._worker = Worker(id=id, kind=kind, host=host, pid=os.getpid(), started_at=now, seen_at=now, **fields)
        self._changing = threading.Lock()
        self._changed, self._ended = threading.Event(), False
        self.is_listed = False
        self._thread = threading.Thread(target=self._beat, name="octet-presence", daemon=True)

    @property
    def id(self) -> str:
        return self._worker.id

    def set_build(self, build: str | None) -> None:
        """Sets the build that this worker is working on, and writes the row at once."""
        self._change(build=build)

    def set_loaded(self, names: Collection[tuple[str, str]]) -> None:
        """Sets the models that this worker has in memory, and writes the row at once if they changed. May be called
        from any thread.
        """
        loaded = tuple(sorted(names))
        if loaded != self._worker.loaded:
            self._change(loaded=loaded, loaded_version=self._worker.loaded_version + 1)

    def set_draining(self) -> None:
        """Marks this worker as draining, so that it gets no new requests, and writes the row at once."""
        self._change(state=WorkerState.DRAINING)

    def _change(self, **members: Any) -> None:
        with self._changing:
            self._worker = replace(self._worker, **members)
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
            self.is_listed |= self._try(lambda: self._workers.beat(self._worker))
            if not self._ended:
                self._changed.wait(self._every_s)
        self._try(lambda: self._workers.remove(self._worker.id))

    def _try(self, write: Callable[[], None]) -> bool:
        try:
            write()
        except Exception as error:  # a failed heartbeat must not end the process
            log_trouble(_logger, error, "worker %s could not write its heartbeat", self._worker.id)
            return False
        return True
