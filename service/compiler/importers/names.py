"""The names of a model's inputs and outputs, as clients see them, and lists of names in messages."""

from __future__ import annotations

from collections.abc import Container, Sequence

_NAME_LENGTH = 256
MOST_NAMES = 20
_SHOWN = 200


def printable(name: str) -> str:
    """Returns a name that can safely be part of a JSON document, a log line or terminal output."""
    return "".join(char if char.isprintable() else "_" for char in name)[:_NAME_LENGTH]


def shortened(name: str) -> str:
    """Returns a name as messages show it. Converters join the names of all operators that they fuse, and a hostile file
    may contain names of megabytes.
    """
    return name if len(name) <= _SHOWN else name[: _SHOWN - 1] + "…"


def unique(name: str, taken: Container[str]) -> str:
    """Returns `name`, or the first of `name_1`, `name_2` … that `taken` does not contain."""
    candidate, number = name, 1
    while candidate in taken:
        candidate, number = f"{name}_{number}", number + 1
    return candidate


def join_names(names: Sequence[str]) -> str:
    """Returns the first names, separated by commas, and the number of the others: `a, b and 3 more`."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
