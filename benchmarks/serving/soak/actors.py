"""Clients that send requests continuously and concurrently, and their results."""

from __future__ import annotations

import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import httpx

_KEPT = 50
WRONG = "wrong"
REFUSED = 429  # permitted at any time: the queue is bounded


class Unexpected(Exception):
    """A response differs from the expected one. `outcome` is the word under which it is counted."""

    def __init__(self, what: str, outcome: str = WRONG) -> None:
        super().__init__(what)
        self.outcome = outcome


@dataclass
class Problems:
    """Counts unexpected results, and stores a limited number of their messages, each once. Thread-safe."""

    count: int = 0
    kinds: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, what: str) -> None:
        with self._lock:
            self.count += 1
            if what not in self.kinds and len(self.kinds) < _KEPT:
                self.kinds.append(what)
                print(f"  PROBLEM {what}", flush=True)


@dataclass
class Actor:
    """Sends a request every `every_s`, later if the response takes longer, and counts the outcomes.

    Attributes:
        act: sends one request. Returns a word for the outcome, mostly the status; raises `Unexpected`.
    """

    name: str
    every_s: float
    act: Callable[[], str]
    outcomes: Counter[str] = field(default_factory=Counter)

    def run(self, over: threading.Event, problems: Problems) -> None:
        due_s = time.monotonic()
        while not over.wait(max(0.0, due_s - time.monotonic())):
            due_s = max(due_s + self.every_s, time.monotonic())
            self.outcomes[self._once(problems)] += 1

    def _once(self, problems: Problems) -> str:
        try:
            return self.act()
        except Unexpected as error:
            problems.add(f"{self.name}: {error}")
            return error.outcome
        except (httpx.TransportError, grpc.RpcError, OSError) as error:
            problems.add(f"{self.name}: {type(error).__name__} {error}")
            return type(error).__name__
        except Exception as error:  # a response that cannot even be read
            problems.add(f"{self.name}: {traceback.format_exc()}")
            return type(error).__name__


@contextmanager
def running(actors: Sequence[Actor], problems: Problems) -> Iterator[None]:
    """Runs the actors while the context is entered."""
    over = threading.Event()
    threads = [threading.Thread(target=actor.run, args=(over, problems), name=actor.name) for actor in actors]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def checked(response: httpx.Response, *allowed: int) -> str:
    """Returns the status. Raises `Unexpected` if it is not one of `allowed`."""
    if response.status_code not in allowed:
        request = response.request
        what = f"{request.method} {request.url.path}: {response.status_code}, not {allowed}: {_error_message(response)}"
        raise Unexpected(what, str(response.status_code))
    return str(response.status_code)


def _error_message(response: httpx.Response) -> str:
    """Returns the server's error message, without parts that differ between requests."""
    try:
        return str(response.json()["detail"])
    except (ValueError, LookupError, TypeError):
        return response.text[:300]


def hold(actual: Any, right: Any, what: str) -> None:
    """Raises `Unexpected` if the result is not the expected one."""
    if actual != right:
        raise Unexpected(f"{what}: {str(actual)[:200]}, not {str(right)[:200]}")
