"""The workers of a cluster, according to the table of workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Protocol

from service.core.cluster.worker import Beat, Worker

BEATS = 2  # a worker that has missed this many heartbeats in a row is gone
_HORIZON_S = 24 * 3600.0  # the row of a worker that was killed is deleted after this time


class Table(Protocol):
    """The methods of the table of workers that are needed here: `service.db.WorkerStore`."""

    def beats(self, within_s: float) -> Collection[Beat]: ...

    def find(self, ids: Collection[str]) -> Collection[Worker]: ...


class Members:
    """Tracks which workers are running. For one thread at a time; `look` blocks.

    A worker is gone when its row is deleted, or when it has sent no heartbeat for two intervals by the database's
    clock. While the database is unreachable, no heartbeat can be read. When it returns, the workers that were running
    before then have two more intervals to send a heartbeat.
    """

    def __init__(self, table: Table, heartbeat_s: float, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._table, self._heartbeat_s, self._monotonic_s = table, heartbeat_s, monotonic_s
        self._workers: dict[str, Worker] = {}
        self._looked_s: float | None = None
        self._lenient_until_s = float("-inf")

    def look(self) -> Mapping[str, Worker]:
        """Returns the workers that are running now, by id. Reads the loaded models of a worker only if they have
        changed.

        Raises:
            OctetError: the table cannot be read. The earlier result remains valid.
        """
        patience_s = BEATS * self._heartbeat_s
        beats = {each.id: each for each in self._table.beats(_HORIZON_S)}
        now_s = self._monotonic_s()
        if self._looked_s is not None and now_s - self._looked_s > self._heartbeat_s:
            self._lenient_until_s = now_s + patience_s
        self._looked_s = now_s
        is_lenient = now_s < self._lenient_until_s
        alive = {
            id: beat
            for id, beat in beats.items()
            if beat.silent_s <= patience_s or (is_lenient and id in self._workers)
        }
        self._workers = {id: self._workers[id] for id in alive if id in self._workers}
        changed = [id for id, beat in alive.items() if self._version(id) != beat.loaded_version]
        if changed:
            self._workers |= {worker.id: worker for worker in self._table.find(changed)}
        return {id: replace(worker, state=alive[id].state) for id, worker in self._workers.items()}

    def _version(self, id: str) -> int | None:
        return self._workers[id].loaded_version if id in self._workers else None
