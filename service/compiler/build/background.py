"""Runs children in background threads of a build. When the block that started the children ends, they are killed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

from service.core.builds.build import BuildCanceled

T = TypeVar("T")
Poll = Callable[[], None]


class Start(Protocol):
    """Runs a function in the background. The function must pass its argument as `poll` to each child that it runs."""

    def __call__(self, function: Callable[[Poll], T], /) -> Future[T]: ...


@contextmanager
def in_background(at_once: int) -> Iterator[Start]:
    """Yields a function that starts other functions in background threads, at most `at_once` at a time.

    When the block ends, children that are still running are killed, and the functions are awaited.
    """
    abandoned = threading.Event()

    def poll() -> None:
        if abandoned.is_set():
            raise BuildCanceled

    with ThreadPoolExecutor(at_once) as pool:
        try:
            yield lambda function: pool.submit(function, poll)
        finally:
            abandoned.set()
            pool.shutdown(wait=False, cancel_futures=True)
