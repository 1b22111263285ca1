"""Sends API keys to servers in tests."""

from __future__ import annotations

from collections.abc import Callable

from service.api.access import Access

Make = Callable[..., Access]


def bearer(text: str) -> bytes:
    return f"Bearer {text}".encode()
