"""The process that serves: the API and the inference worker, on a socket that `supervisor` holds."""

from __future__ import annotations

import faulthandler
import logging
import os
import resource
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType, TracebackType

import uvicorn
from fastapi import FastAPI
from uvicorn.server import HANDLED_SIGNALS

from service.api.app import create_app
from service.api.assembly import assemble
from service.api.grpc.auto import grpc_server
from service.api.grpc.native import NativeGrpcServer
from service.api.grpc.server import GrpcServer
from service.api.oip.front import Fronted
from service.api.oip.front.shortcut import connections
from service.core.certificate import Certificate
from service.core.logs import Seldom
from service.core.running import Running
from service.core.settings import Settings
from service.core.target import detect_host
from service.core.worker import WorkerKind
from service.workers.crashes import Crashes
from service.workers.presence import Presence

_logger = logging.getLogger(__name__)
_KEEP_ALIVE_S = 75  # longer than a client's pool keeps a connection, or its next request meets a closing one


def run(
    settings: Settings,
    listener: socket.socket,
    grpc: tuple[str, int] | None,
    certificate: Certificate | None,
    running: Running,
    crashes: Crashes,
    ready: Callable[[], None],
) -> None:
    """Serves until SIGTERM or SIGINT comes, be it while it still starts. To be called in the main thread.

    Args:
        listener: takes connections already.
        grpc: the address for gRPC, where it is served.
        certificate: None where connections are in plain text.
        running: where it is noted which artifact computes.
        crashes: what crashes of earlier processes were put down to.
        ready: called once, when requests are taken.

    Raises:
        OctetError: the database or the store cannot be opened.
    """
    with ExitStack() as stack:
        signals = stack.enter_context(_Signals())
        faulthandler.enable()  # a crash says where in the log
        _raise_descriptors()
        logging.getLogger("uvicorn.error").addFilter(Seldom())  # or malformed requests fill the log
        services = stack.enter_context(assemble(settings, detect_host(), running, crashes, signals.database_lost))
        second = grpc_server(services, *grpc, certificate) if grpc else None
        server = _Server(create_app(services), settings, certificate, signals, ready, second)
        if services.host.best is not None:  # only a process that can run a target is an inference worker
            stack.enter_context(Presence(services.workers, WorkerKind.INFERENCE, settings.heartbeat_s))
        if not signals.came:
            server.run(sockets=[listener])


def _raise_descriptors() -> None:
    """Every idle connection is one, and the default is a thousand."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _Signals:
    """Takes note of SIGTERM and SIGINT before there is a server to tell, and after. A context manager.

    Its user checks `came` between two steps: each step completes what it has begun.
    """

    def __init__(self) -> None:
        self.came = False

    def __enter__(self) -> _Signals:
        self._before = {number: signal.signal(number, self._take_note) for number in HANDLED_SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def database_lost(self) -> None:
        """Ends this process as SIGTERM does: the next one makes the database again. From any thread."""
        if not self.came:
            _logger.error("the database file is gone: the server starts again, and makes it from the store's index")
            os.kill(os.getpid(), signal.SIGTERM)

    def _take_note(self, number: int, frame: FrameType | None) -> None:
        self.came = True


class _Server(Fronted):
    """Notifies all waiters when the process is told to stop."""

    def __init__(
        self,
        app: FastAPI,
        settings: Settings,
        certificate: Certificate | None,
        signals: _Signals,
        on_started: Callable[[], None],
        grpc: GrpcServer | NativeGrpcServer | None = None,
    ) -> None:
        config = uvicorn.Config(
            app,
            http=connections(settings),  # type: ignore[arg-type]  # protocols, with buffers of their own
            ssl_context_factory=None if certificate is None else lambda config, default: certificate.context,
            lifespan="on",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=max(1, round(settings.grace_s)),
        )
        super().__init__(config, app, settings)
        self._stopping = app.state.services.stopping
        self._signals, self._on_started, self._grpc = signals, on_started, grpc

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._grpc is not None:
            await self._grpc.start()
        await super().startup(sockets)
        if not self.should_exit:  # otherwise the server accepts no requests any more, and is not announced
            self._on_started()

    def drains(self) -> list[Awaitable[None]]:
        return super().drains() + ([] if self._grpc is None else [self._grpc.stop(self._settings.grace_s)])

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Unlike uvicorn's, does not raise the signal again afterwards: that would end us before all is tidied up."""
        before = {number: signal.signal(number, self.handle_exit) for number in HANDLED_SIGNALS}
        if self._signals.came:  # before this listened for signals
            self.handle_exit(signal.SIGTERM, None)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._signals.came = True
        self._stopping.set()  # requests that wait for a build end now, not when the time to drain is over
        super().handle_exit(sig, frame)
