"""Single-flight: callers that ask the same question at the same time share one computation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class SingleFlight(Generic[Key, Answer]):
    """Computations under way, by key; forgotten when they end. For one event loop."""

    def __init__(self) -> None:
        self._tasks: dict[Key, asyncio.Task[Answer]] = {}

    async def join(self, key: Key, compute: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer of the computation for `key` that is under way, or else of `compute`, which it starts.

        The computation goes on when a caller is canceled: the others, and the next one, still want it.
        """
        task = self._tasks.get(key)
        if task is None or task.done():  # one that is over answers whoever asked before its end
            task = self._tasks[key] = asyncio.ensure_future(_run(compute))
            task.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(task)

    def __iter__(self) -> Iterator[Key]:
        """The keys of what is under way now, from any thread."""
        return iter(list(self._tasks))

    async def end(self) -> None:
        """Cancels everything under way and waits for it."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, key: Key, task: asyncio.Task[Any]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled():
            task.exception()  # callers have it; asyncio would log it where all of them were canceled


async def _run(compute: Callable[[], Awaitable[Answer]]) -> Answer:
    return await compute()
