"""Waits for conditions. The timeouts are long enough for a busy machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

# Timeouts that are reached only if something fails, even on a busy machine.
GIVE_UP_S = 60.0  # For events that take milliseconds: a response, the end of a process.
WORK_TIMEOUT_S = 300.0  # For work that takes seconds of processor time: a command, a build, the start of a server.
_PAUSE_S = 0.002


def eventually(condition: Callable[[], bool], within_s: float = GIVE_UP_S) -> None:
    """Waits until `condition` returns true. Raises AssertionError after `within_s`."""
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s, f"the condition did not become true within {within_s:g} s"
        time.sleep(_PAUSE_S)


async def eventually_async(condition: Callable[[], bool], within_s: float = GIVE_UP_S) -> None:
    """Waits like `eventually`, without blocking the event loop."""
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s, f"the condition did not become true within {within_s:g} s"
        await asyncio.sleep(_PAUSE_S)
