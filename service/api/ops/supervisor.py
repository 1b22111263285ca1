"""`octet serve`: the process that a person starts and stops. It keeps a server and a compile worker running.

It holds the sockets, so that the ports stay ours and a client gets an answer while the server is down; it takes
note of what ran when the server crashed; and it does nothing else, so that nothing can bring it down. What the server
is made of is loaded here, so that another is there at once, and used only there.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import signal
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from service.api.access import check_exposure
from service.api.grpc.port import reserve
from service.api.ops.sockets import notice_lost_clients
from service.api.ops.standby import Standby
from service.compiler.sandbox import Finding, check
from service.core.certificate import certificate_of
from service.core.errors import Conflict, InvalidInput
from service.core.running import Running
from service.core.settings import Settings
from service.core.target import Host, detect_host
from service.workers.crashes import crashes_of
from service.workers.supervised import End, Ready, SupervisedProcess

_logger = logging.getLogger(__name__)
_BACKLOG = 2048
_PATIENCE_S = 10.0  # beyond the time that requests under way have
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # which no model's own code raises


@dataclass(frozen=True)
class Started:
    """The facts that the start-up message shows when the server accepts requests.

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
) -> int:
    """Serves until SIGTERM or SIGINT comes, be it while it still starts; a second one ends everything at once.

    To be called in the main thread, of a process that has no other.

    Args:
        compile: whether to run a compile worker; without, builds wait for one that runs elsewhere.
        on_started: called once, when requests are taken.

    Returns:
        The exit status: 0, or 128 and the number of the second signal.

    Raises:
        Conflict: a port is taken.
        InvalidInput: others than this machine reach the address, and there is no API key; or no certificate.
        NotStarted: the server died before it took requests.
        OctetError: the database or the store cannot be opened.
    """
    return asyncio.run(_serve(settings, compile, on_started))


async def _serve(settings: Settings, compile: bool, on_started: Callable[[Started], None]) -> int:
    loop = asyncio.get_running_loop()
    told: asyncio.Queue[int] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.put_nowait, number)
    with ExitStack() as stack:
        check_exposure(settings)
        listener = stack.enter_context(_listen(settings.host, settings.port))
        grpc: tuple[str, int] | None = None
        if settings.grpc:
            grpc = stack.enter_context(reserve(settings.host, settings.port_of_grpc)).getsockname()[:2]
        _load_server()
        await asyncio.sleep(0)
        if not told.empty():
            return 0
        supervisor = _Supervisor(settings, listener, grpc, compile, on_started)
        return await supervisor.run(told)


def _load_server() -> None:
    """Half a second of imports, once, for this child and all that follow it: a fork has them."""
    gc.disable()  # nothing of it is garbage, and to look for some takes a fifth of the time
    importlib.import_module("service.api.ops.server")
    gc.freeze()  # or a child that looks for garbage writes to each page that it shares with us
    gc.enable()


class _Supervisor:
    """The supervision of one serving process: callbacks for its start, readiness and end."""

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        grpc: tuple[str, int] | None,
        compile: bool,
        on_started: Callable[[Started], None],
    ) -> None:
        self._settings, self._listener, self._grpc, self._compile = settings, listener, grpc, compile
        self._on_started: Callable[[Started], None] | None = on_started
        self._running = Running()
        self._crashes = crashes_of(settings)
        self._certificate = certificate_of(settings)
        self._standby = Standby(listener, self._certificate.context if self._certificate else None)
        grace_s = settings.grace_s + _PATIENCE_S
        self._server = SupervisedProcess(
            "server",
            self._be_server,
            grace_s=grace_s,
            keep=[listener.fileno()],
            on_ready=self._server_is_ready,
            on_end=self._server_ended,
        )
        self._children = [self._server]
        if compile:
            self._children.append(SupervisedProcess("compile worker", self._be_compile_worker, grace_s=grace_s))

    async def run(self, told: asyncio.Queue[int]) -> int:
        self._standby.begin("the server is starting")
        running = asyncio.gather(*(child.run() for child in self._children))
        stopping = asyncio.ensure_future(self._stop_when(told))
        try:
            await running
            return stopping.result() if stopping.done() else 0
        finally:
            stopping.cancel()
            for child in self._children:  # where one of them gave up
                child.kill()
            self._standby.end()

    async def _stop_when(self, told: asyncio.Queue[int]) -> int:
        await told.get()
        self._standby.begin("the server is stopping")
        for child in self._children:
            child.stop()
        number = await told.get()
        for child in self._children:
            child.kill()
        return 128 + number

    def _be_server(self, ready: Ready) -> None:
        from service.api.ops.server import run

        run(self._settings, self._listener, self._grpc, self._certificate, self._running, self._crashes, ready)

    def _be_compile_worker(self, ready: Ready) -> None:
        from service.workers.compile_worker import run_until_signaled

        run_until_signaled(self._settings, on_started=lambda _: ready())

    def _server_is_ready(self) -> None:
        self._standby.end()
        if self._on_started is None:
            _logger.warning("the server is ready again")
            return
        on_started, self._on_started = self._on_started, None
        machine = detect_host()
        if machine.best is None:
            _logger.warning("%s; predictions are not answered here", machine.why_none)
        findings = tuple(check()) if self._compile else ()
        for finding in findings:
            _report(finding, self._settings)
        port, grpc_port = self._listener.getsockname()[1], self._grpc[1] if self._grpc else None
        on_started(Started(self._settings.host, port, grpc_port, machine, findings))

    def _server_ended(self, end: End) -> bool:
        """Whether to start another: not if the first could not start, but for a model that it was to load."""
        self._standby.begin(f"the server ended ({end}), and is starting again")
        ran = self._running.marked()
        self._running.clear()
        if not ran or -end.status in _FROM_OUTSIDE:
            return self._on_started is None
        for artifact, record in self._crashes.note(ran, str(end)).items():
            _logger.error(
                "the server crashed (%s) while artifact %s ran: %s",
                end,
                artifact,
                "it is in quarantine now"
                if record.is_quarantined
                else f"crash {len(record.crashes)} of {self._settings.max_crashes} before it is put in quarantine",
            )
        return True


def _listen(host: str, port: int) -> socket.socket:
    """Bound first of all, so that a second server on the same port does nothing but say so."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except socket.gaierror as error:
        raise InvalidInput(
            f"{host!r} is not an address to listen on: {error.strerror}", hint="--host 127.0.0.1"
        ) from error
    except OSError as error:
        raise Conflict(
            f"cannot listen on {host}:{port}: {error.strerror}", hint="choose another --port; 0 takes a free one"
        ) from error
    notice_lost_clients(listener)
    return listener


def _report(finding: Finding, settings: Settings) -> None:
    if finding.available:
        return
    consequence = "and that is allowed" if settings.allow_unsandboxed else "so builds are refused"
    _logger.warning(
        "no %s (%s), %s: a model file could do this: %s", finding.name, finding.detail, consequence, finding.lost
    )
