"""The workers and models to which a data plane forwards predictions, as rows, with the changes since they were last
sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

from service.workers.data_plane import orders

Members = dict[str, Any]
Key = TypeVar("Key")
Row = TypeVar("Row")


class _Rows(Generic[Key, Row]):
    """Rows by key, and the keys of those that have changed since the last call of `whole` or `changes`."""

    def __init__(self) -> None:
        self._rows: dict[Key, Row] = {}
        self._before: dict[Key, Row | None] = {}  # the earlier values of rows that were put or dropped

    def put(self, key: Key, row: Row) -> None:
        if (before := self._rows.get(key)) != row:
            self._before.setdefault(key, before)
            self._rows[key] = row

    def drop(self, key: Key) -> None:
        if (before := self._rows.pop(key, None)) is not None:
            self._before.setdefault(key, before)

    def replace(self, rows: Mapping[Key, Row]) -> None:
        for key in self._rows.keys() - rows.keys():
            self.drop(key)
        for key, row in rows.items():
            self.put(key, row)

    def whole(self) -> list[Row]:
        self._before.clear()
        return list(self._rows.values())

    @property
    def has_changed(self) -> bool:
        return any(self._rows.get(key) != before for key, before in self._before.items())

    def changes(self) -> tuple[list[Row], list[Key]]:
        changed = [key for key, before in self._before.items() if self._rows.get(key) != before]
        self._before.clear()
        rows = [self._rows[key] for key in changed if key in self._rows]
        return rows, [key for key in changed if key not in self._rows]


class Table:
    """The table of workers and models, for one event loop. `DataPlane.follow` sends the whole table or its changes to a
    data plane.
    """

    def __init__(self) -> None:
        self._cluster_key, self._has_new_key = "", False
        self._workers = _Rows[str, orders.Worker]()
        self._models = _Rows[tuple[str, str], orders.Servable]()

    def set_key(self, cluster_key: str) -> None:
        """Sets the key for workers that have no key of their own."""
        self._has_new_key = self._has_new_key or cluster_key != self._cluster_key
        self._cluster_key = cluster_key

    @property
    def has_changed(self) -> bool:
        """Returns true if the table has changed since the last call of `whole` or `changes`."""
        return self._has_new_key or self._workers.has_changed or self._models.has_changed

    def set_workers(self, workers: Iterable[orders.Worker]) -> None:
        """Replaces all workers."""
        self._workers.replace({each.id: each for each in workers})

    def set_models(self, models: Iterable[orders.Servable]) -> None:
        """Replaces all models."""
        self._models.replace({(each.model, each.version): each for each in models})

    def put_model(self, servable: orders.Servable) -> None:
        self._models.put((servable.model, servable.version), servable)

    def drop_model(self, model: str, version: str) -> None:
        self._models.drop((model, version))

    def whole(self) -> Members:
        """Returns the order that replaces the data plane's whole table by this table."""
        self._has_new_key = False
        return orders.workers(self._cluster_key, self._workers.whole(), self._models.whole())

    def changes(self) -> Members:
        """Returns the order that updates the data plane's table from its state at the last call of `whole` or
        `changes`.
        """
        self._has_new_key = False
        workers, gone = self._workers.changes()
        models, forgotten = self._models.changes()
        return orders.workers(self._cluster_key, workers, models, gone, forgotten, resets=False)
