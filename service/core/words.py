"""Words for people."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """Returns "1 block", "2 blocks"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
