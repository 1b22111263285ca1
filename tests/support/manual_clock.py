"""An event loop whose time passes only when a test says so, however busy the machine is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from tests.support.waiting import GIVE_UP_S


class ManualClock(asyncio.SelectorEventLoop):
    """asyncio's loop, in a thread; `advance` is called from another."""

    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__()

    def time(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Returns when the timers of that time have gone off."""
        passed = threading.Event()
        self.skip(seconds, passed.set)
        assert passed.wait(GIVE_UP_S), "the event loop hangs"

    def skip(self, seconds: float, then: Callable[[], object] = lambda: None) -> None:
        """As `advance`, without waiting. Raises RuntimeError where the loop is closed."""

        def step() -> None:
            self._now_s += seconds
            self.call_later(0, self.call_soon, then)  # after all timers that are due

        self.call_soon_threadsafe(step)
