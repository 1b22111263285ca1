"""Helpers around the generated accessors of the `tflite` package."""

from __future__ import annotations

from typing import Any

_SHOWN = 200


def ints(table: Any, vector: str) -> tuple[int, ...]:
    """A vector of integers; empty where the file leaves it out, for which the accessor gives 0."""
    length = getattr(table, f"{vector}Length")()
    return tuple(int(value) for value in getattr(table, f"{vector}AsNumpy")()) if length else ()


def text(raw: bytes | None) -> str:
    """A name in the file. Names are for people: bytes that are not UTF-8 are shown, not refused."""
    return (raw or b"").decode("utf-8", errors="backslashreplace")


def shortened(name: str) -> str:
    """A name as messages show it: converters join the names of everything they fused, and a hostile file may have
    names of megabytes."""
    return name if len(name) <= _SHOWN else name[: _SHOWN - 1] + "…"
