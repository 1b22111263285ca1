"""What `octet serve` does with signals; the rest of it is in the integration tests."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from fastapi import FastAPI

from service.api.ops.server import _Server, _Signals
from service.core.settings import Settings


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def run(listener: socket.socket, signals: _Signals, starting: signal.Signals | None = None) -> list[str]:
    """What happened, in order, until the server ended. `starting` is sent while the application starts."""
    happened: list[str] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if starting:
            os.kill(os.getpid(), starting)
            await asyncio.sleep(0)
        happened.append("application started")
        yield
        happened.append("application ended")

    app = FastAPI(lifespan=lifespan)
    app.state.services = SimpleNamespace(
        stopping=threading.Event(), tracing=True
    )  # which a front would know nothing of

    def on_started() -> None:
        happened.append("told of")
        os.kill(os.getpid(), signal.SIGTERM)

    _Server(app, Settings(), None, signals, on_started).run(sockets=[listener])
    return happened


def test_a_server_that_started_is_told_of_and_ends_when_it_is_told_to(listener: socket.socket) -> None:
    with _Signals() as signals:
        assert run(listener, signals) == ["application started", "told of", "application ended"]
        assert signals.came


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_nobody_is_told_of_a_server_that_was_to_stop_while_it_started(
    listener: socket.socket, number: signal.Signals
) -> None:
    with _Signals() as signals:
        assert run(listener, signals, starting=number) == ["application started", "application ended"]


def test_a_signal_that_came_before_there_was_a_server_is_not_lost(listener: socket.socket) -> None:
    with _Signals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.came
        assert run(listener, signals) == ["application started", "application ended"]


def test_afterwards_signals_are_what_they_were() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with _Signals():
        pass
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
