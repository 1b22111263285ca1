"""`octet serve`: everything in one process tree, on one port (and one for gRPC) and one folder."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.server import HANDLED_SIGNALS

from service.api.grpc.port import reserve
from service.compiler.sandbox import Finding, check
from service.core.errors import Conflict, InvalidInput
from service.core.settings import Settings
from service.core.target import Host, detect_host

if TYPE_CHECKING:
    from fastapi import FastAPI

    from service.api.grpc.server import GrpcServer
    from service.workers.supervisor import Supervisor

_logger = logging.getLogger(__name__)
_BACKLOG = 2048
_KEEP_ALIVE_S = 75  # longer than a client's pool keeps a connection, or its next request meets a closing one
_DRAIN_S = 30


@dataclass(frozen=True)
class Started:
    """What a person wants to know when the server takes requests.

    Attributes:
        host: the address that it listens on; the ports are the real ones, where 0 was asked for.
        grpc_port: None where it answers over HTTP only.
        machine: where it runs; one that no target runs on answers no predictions.
        sandbox: what this kernel has to lock the compiler in; empty where nothing is compiled.
    """

    host: str
    port: int
    grpc_port: int | None
    machine: Host
    sandbox: tuple[Finding, ...]


def serve(
    settings: Settings, *, compile: bool = True, on_started: Callable[[Started], None] = lambda started: None
) -> None:
    """Serves until SIGTERM or SIGINT comes, be it while it still starts. To be called in the main thread.

    Args:
        compile: whether to run a compile worker; without, builds wait for one that runs elsewhere.
        on_started: called once, when requests are taken.

    Raises:
        Conflict: a port is taken.
        OctetError: the database or the store cannot be opened.
    """
    with ExitStack() as stack:
        signals = stack.enter_context(_Signals())
        from service.api.app import create_app
        from service.api.assembly import assemble
        from service.api.grpc.server import GrpcServer
        from service.core.worker import WorkerKind
        from service.workers.presence import Presence
        from service.workers.supervisor import compile_worker

        listener = stack.enter_context(_listen(settings.host, settings.port))
        reserved = (
            stack.enter_context(reserve(settings.host, settings.port_of_grpc)).getsockname()[:2]
            if settings.grpc
            else None
        )
        services = stack.enter_context(assemble(settings, detect_host()))
        host = services.host
        if host.best is None:
            _logger.warning("%s; predictions are not answered here", host.why_none)
        findings = tuple(check()) if compile else ()
        for finding in findings:
            _report(finding, settings)
        worker = compile_worker(settings) if compile else None
        app = create_app(services)
        server = _Server(
            app,
            worker,
            signals,
            lambda: on_started(
                Started(settings.host, listener.getsockname()[1], reserved[1] if reserved else None, host, findings)
            ),
            GrpcServer(services, *reserved) if reserved else None,
        )
        if host.best is not None:  # an inference worker is who can run something
            stack.enter_context(Presence(services.workers, WorkerKind.INFERENCE, settings.heartbeat_s))
        if worker is not None:
            stack.callback(worker.stop)
        if signals.came:
            return
        if worker is not None:
            worker.start()
        server.run(sockets=[listener])


class _Signals:
    """Takes note of SIGTERM and SIGINT before there is a server to tell, and after. A context manager.

    Whoever enters it looks at `came` between two steps: what a step has begun, it also ends. A second Ctrl-C ends at
    once, as it does everywhere.
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

    def _take_note(self, number: int, frame: FrameType | None) -> None:
        if self.came and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.came = True


class _Server(uvicorn.Server):
    """Tells everybody at once when the process is told to stop."""

    def __init__(
        self,
        app: FastAPI,
        worker: Supervisor | None,
        signals: _Signals,
        on_started: Callable[[], None],
        grpc: GrpcServer | None = None,
    ) -> None:
        config = uvicorn.Config(
            app,
            lifespan="on",
            access_log=False,
            log_config=None,
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_DRAIN_S,
        )
        super().__init__(config)
        self._stopping = app.state.services.stopping
        self._worker, self._signals, self._on_started, self._grpc = worker, signals, on_started, grpc

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._grpc is not None:
            await self._grpc.start()
        await super().startup(sockets)
        if not self.should_exit:  # otherwise nobody shall be told of a server that takes no request any more
            self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        draining = [super().shutdown(sockets)]
        if self._grpc is not None:
            draining.append(self._grpc.stop(_DRAIN_S))
        await asyncio.gather(*draining)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Unlike uvicorn's, does not raise the signal again afterwards: that would end us before all is tidied up."""
        before = {number: signal.signal(number, self.handle_exit) for number in HANDLED_SIGNALS}
        if self._signals.came:  # while nobody listened here yet
            self.handle_exit(signal.SIGTERM, None)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._signals.came = True
        self._stopping.set()  # who waits for a build lets go now, not when the time to drain is over
        if self._worker is not None:
            self._worker.begin_stop()
        super().handle_exit(sig, frame)


def _listen(host: str, port: int) -> socket.socket:
    """Bound first of all, so that a second server on the same port does nothing but say so."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        # Accepted sockets inherit it. asyncio sets it only on sockets of its own making, and without it an answer on
        # a kept connection waits 40 ms for the client's delayed acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except socket.gaierror as error:
        raise InvalidInput(f"{host!r} is no address to listen on: {error.strerror}", hint="--host 127.0.0.1") from error
    except OSError as error:
        raise Conflict(
            f"cannot listen on {host}:{port}: {error.strerror}", hint="choose another --port; 0 takes a free one"
        ) from error


def _report(finding: Finding, settings: Settings) -> None:
    if finding.available:
        return
    consequence = "and that is allowed" if settings.allow_unsandboxed else "so builds are refused"
    _logger.warning(
        "no %s (%s), %s: a model file could do this: %s", finding.name, finding.detail, consequence, finding.lost
    )
