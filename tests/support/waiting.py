"""Waiting for what happens elsewhere, however busy the machine is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

# Bounds that only a failure reaches, beside whatever else the machine does.
GIVE_UP_S = 60.0  # for what takes milliseconds: an event, an answer, the end of a process
WORK_TIMEOUT_S = 300.0  # for what takes seconds of processor time: a command, a build, the start of a server
_PAUSE_S = 0.002


def eventually(condition: Callable[[], bool], within_s: float = GIVE_UP_S) -> None:
    """Returns when `condition` holds. Raises AssertionError when it does not for `within_s`."""
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come to pass"
        time.sleep(_PAUSE_S)


async def eventually_async(condition: Callable[[], bool], within_s: float = GIVE_UP_S) -> None:
    """As `eventually`, while the event loop goes on."""
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come to pass"
        await asyncio.sleep(_PAUSE_S)
