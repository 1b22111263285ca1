"""Single-flight: callers that request the same key at the same time share one computation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class SingleFlight(Generic[Key, Answer]):
    """The computations in progress, by key. A computation is removed when it ends. For one event loop."""

    def __init__(self) -> None:
        self._tasks: dict[Key, asyncio.Task[Answer]] = {}

    async def join(self, key: Key, compute: Callable[[], Awaitable[Answer]]) -> Answer:
        """Returns the result of the computation for `key` that is in progress, or else of `compute`, which it starts.

        The computation continues if a caller is canceled, because other callers, including later ones, need its result.
        """
        task = self._tasks.get(key)
        if task is None or task.done():  # a finished task only serves callers that joined before its end
            task = self._tasks[key] = asyncio.ensure_future(_run(compute))
            task.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(task)

    def __iter__(self) -> Iterator[Key]:
        """Iterates over the keys of the computations in progress. May be called from any thread."""
        return iter(list(self._tasks))

    async def end(self) -> None:
        """Cancels all computations in progress and waits for them."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, key: Key, task: asyncio.Task[Any]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled():
            # Marks the exception as retrieved. The callers got it, but if all of them were canceled, asyncio would log
            # it.
            task.exception()


async def _run(compute: Callable[[], Awaitable[Answer]]) -> Answer:
    return await compute()
