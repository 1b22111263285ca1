"""Waits for changes that another process writes to the database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from service.api.services import Services
from service.db import Watch

POLL_S = 0.1  # each check costs about 0.2 ms
LOOK_S = 1.0  # the interval if the database announces changes; the progress of a build is not announced

T = TypeVar("T")


async def wait_until(
    look: Callable[[], T],
    is_enough: Callable[[T], bool],
    timeout_s: float,
    services: Services,
    request: Request,
) -> T:
    """Calls `look` repeatedly, in a thread, until `is_enough` is true for its result, or `timeout_s` has passed, or the
    client has left, or the server stops. Returns the last result.
    """
    deadline_s, stopping = time.monotonic() + timeout_s, services.stopping
    watch = Watch(services.builds.notifications, LOOK_S)
    watch.is_due()
    seen = await run_in_threadpool(look)
    while True:
        left_s = deadline_s - time.monotonic()
        if is_enough(seen) or left_s <= 0 or stopping.is_set() or await request.is_disconnected():
            return seen
        await asyncio.sleep(min(POLL_S, left_s))
        if watch.is_due() or left_s <= POLL_S:
            seen = await run_in_threadpool(look)
