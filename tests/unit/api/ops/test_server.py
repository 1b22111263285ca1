"""Tests of how `octet serve` handles signals. Its other behaviour is in the integration tests."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest
from fastapi import FastAPI

from service.api.data_plane.listener import Listener
from service.api.ops import server
from service.api.ops.metrics import Metrics
from service.api.ops.server import _Server, _Signals
from service.api.services import Services
from service.core.settings import Settings
from service.workers.supervised import Ready


async def _nothing(listener: object) -> None:
    """Replaces `Listener.keep_telling`, which needs services."""


class Idle:
    """Replaces `Housekeeping`, which needs builds."""

    def __init__(self, services: object, want_compiler: object) -> None:
        pass

    async def keep(self) -> None:
        pass


class Reached:
    """A data plane that is reachable immediately."""

    async def reached(self) -> None:
        pass

    async def gather(self) -> None:
        pass


class Run:
    """Runs a server until it ends. Returns the events in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(
        self,
        signals: _Signals,
        starting: signal.Signals | None = None,
        application: Callable[[Services], FastAPI] = lambda services: FastAPI(),
    ) -> list[str]:
        """`starting`, if given, is a signal to send during the start."""
        happened: list[str] = []

        @asynccontextmanager
        async def at_work(services: Services) -> AsyncIterator[None]:
            if starting:
                os.kill(os.getpid(), starting)
                await asyncio.sleep(0)
            happened.append("work started")
            yield
            happened.append("work ended")

        class Told(Ready):
            def __call__(self) -> None:
                happened.append("told of")
                os.kill(os.getpid(), signal.SIGTERM)

        self._monkeypatch.setattr(server, "at_work", at_work)
        self._monkeypatch.setattr(server, "_application", application)
        self._monkeypatch.setattr(Listener, "keep_telling", _nothing)
        self._monkeypatch.setattr(server, "Housekeeping", Idle)
        services = SimpleNamespace(
            settings=Settings(),
            plane=Reached(),
            stopping=threading.Event(),
            registry=SimpleNamespace(targets=()),
            routing=None,
            audit=None,
            metrics=Metrics(),
        )
        running = _Server(cast(Services, services), signals, Told(-1))
        running.run()
        if running.failure is not None:
            raise running.failure
        assert services.stopping.is_set()
        return happened


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(monkeypatch)


def test_a_started_server_is_announced_and_ends_at_a_signal(run: Run) -> None:
    with _Signals() as signals:
        assert run(signals) == ["work started", "told of", "work ended"]
        assert signals.came


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_stopped_while_it_starts_is_not_announced(run: Run, number: signal.Signals) -> None:
    with _Signals() as signals:
        assert run(signals, starting=number) == ["work started", "work ended"]


def test_a_signal_before_the_server_exists_is_not_lost(run: Run) -> None:
    with _Signals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.came
        assert run(signals) == ["work started", "work ended"]


def test_a_server_without_an_application_is_not_announced_and_reports_why(run: Run) -> None:
    def broken(services: Services) -> FastAPI:
        raise ImportError("no such module")

    with _Signals() as signals, pytest.raises(ImportError, match="no such module"):
        run(signals, application=broken)


def test_signal_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with _Signals():
        pass
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
