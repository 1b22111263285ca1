"""Waits for conditions. The timeouts are long enough for a busy machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

# Timeouts that are reached only if something fails, even on a busy machine.
GIVE_UP_S = 60.0  # For events that take milliseconds: a response, the end of a process.
WORK_TIMEOUT_S = 300.0  # For work that takes seconds of processor time: a command, a build, the start of a server.
# Longer waits look less often, because the condition may cost processor time, such as a request.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.05
_PAUSE_SHARE = 0.05  # the longest pause, as a share of the time waited so far


def eventually(condition: Callable[[], bool], within_s: float = GIVE_UP_S) -> None:
    """Waits until `condition` returns true. Raises AssertionError after `within_s`."""
    started_s = time.monotonic()
    while not condition():
        time.sleep(_pause_s(time.monotonic() - started_s, within_s))


async def eventually_async(condition: Callable[[], bool], within_s: float = GIVE_UP_S) -> None:
    """Waits like `eventually`, without blocking the event loop."""
    started_s = time.monotonic()
    while not condition():
        await asyncio.sleep(_pause_s(time.monotonic() - started_s, within_s))


def _pause_s(waited_s: float, within_s: float) -> float:
    """Returns how long to wait before the next look at the condition."""
    assert waited_s < within_s, f"the condition did not become true within {within_s:g} s"
    return min(max(_FIRST_PAUSE_S, _PAUSE_SHARE * waited_s), _LONGEST_PAUSE_S)
