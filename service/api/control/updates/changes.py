"""Differences between two states of the server.

A state has parts, such as `models`, and each part has items by key, such as the name of a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

State = Mapping[str, Mapping[str, Any]]


def changes_of(before: State, after: State) -> dict[str, dict[str, Any]]:
    """Returns the changed parts: `set` contains the new and the changed items, `gone` the keys of the deleted ones."""
    found = {}
    for part in {**before, **after}:
        old, new = before.get(part, {}), after.get(part, {})
        changed = {key: item for key, item in new.items() if key not in old or old[key] != item}
        gone = [key for key in old if key not in new]
        if changed or gone or part not in before:
            found[part] = {name: value for name, value in (("set", changed), ("gone", gone)) if value}
    return found
