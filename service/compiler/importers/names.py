"""The names under which clients see a model's inputs and outputs."""

from __future__ import annotations

from collections.abc import Container

_NAME_LENGTH = 256


def printable(name: str) -> str:
    """A name that can stand in a JSON document, a log line and a terminal."""
    return "".join(char if char.isprintable() else "_" for char in name)[:_NAME_LENGTH]


def unique(name: str, taken: Container[str]) -> str:
    """`name`, or `name_1`, `name_2` … where that is taken."""
    candidate, number = name, 1
    while candidate in taken:
        candidate, number = f"{name}_{number}", number + 1
    return candidate
