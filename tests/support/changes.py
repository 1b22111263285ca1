"""A source of model changes that a test controls."""

from __future__ import annotations

from collections.abc import Collection


class ManualChanges:
    """Reports the changes that a test adds, see `service.db.engines.changes.Changes`."""

    def __init__(self) -> None:
        self._models: list[str] = []
        self.asked = 0

    def note(self, model: str) -> None:
        self._models.append(model)

    def since(self, mark: int) -> tuple[int, Collection[str] | None]:
        self.asked += 1
        return len(self._models), None if mark < 0 else self._models[mark:]
