"""Children that run beside the main thread of a build, and end with the block that started them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

from service.core.build import BuildCanceled

T = TypeVar("T")
Poll = Callable[[], None]


class Start(Protocol):
    """Runs a function in the background; it gives its argument to each child that it runs, as `poll`."""

    def __call__(self, function: Callable[[Poll], T], /) -> Future[T]: ...


@contextmanager
def in_background(at_once: int) -> Iterator[Start]:
    """Yields a function that starts others in background threads, a limited number at a time. When the block ends,
    functions that still run are ended and awaited.
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
