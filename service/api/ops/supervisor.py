"""The supervisor: the process that a person starts and stops with `octet serve`, `octet api` or `octet worker`.

It keeps the data plane and the control plane running. It also runs a preprocessing process if the data plane requests
one and, for `octet serve`, a compile worker while builds are queued. The supervisor owns the listening sockets, so that
the ports stay reserved and clients get a response while the data plane is down. It ends child processes that hang, and
records which artifacts ran when a data plane crashed or was ended. The supervisor has no other task, so that little can
crash it. The child processes import their own code.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from service.api.access import check_exposure
from service.api.ops.sockets import notice_lost_clients
from service.api.ops.standby import Standby
from service.api.ops.tenant_processes import TenantProcesses
from service.compiler.sandbox import Finding, check
from service.core.cluster import roles
from service.core.cluster.certificate import certificate_of
from service.core.cluster.running import RunningCalls
from service.core.cluster.settings import Role
from service.core.errors import Conflict, InvalidInput
from service.core.settings import Settings
from service.core.system.gpus import detect_gpus
from service.core.system.notify import ServiceManager
from service.core.system.usable import check_writable
from service.core.target import Host, detect_host
from service.workers.crashes import crashes_of
from service.workers.data_plane import orders, program
from service.workers.data_plane.program import raise_descriptors
from service.workers.supervised import End, Ready, SupervisedProcess
from service.workers.tenant_planes import Addresses, folder_of_front
from service.workers.watching import CallWatch

_logger = logging.getLogger(__name__)
_BACKLOG = 2048
_PATIENCE_S = 10.0  # how long a process may take to end, in addition to the grace period of running requests
_PARTING_S = 2.0  # how long to wait for open connections; longer than the data plane keeps idle connections
_CANNOT_START = 1  # the data plane's exit status if it cannot start
_FROM_OUTSIDE = (
    signal.SIGKILL,
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
)  # signals that the code of a model does not cause


@dataclass(frozen=True)
class Started:
    """The facts that the start-up message shows when the server accepts requests.

    Attributes:
        host: the address that the server listens on. The ports are the actual ones, even if port 0 was requested.
        grpc_port: the gRPC port; None if the server serves HTTP only.
        machine: the machine that the server runs on. If no target runs on it, the server answers no predictions.
        sandbox: the features of this kernel that can sandbox the compiler; empty if nothing is compiled here.
    """

    host: str
    port: int
    grpc_port: int | None
    machine: Host
    sandbox: tuple[Finding, ...]


def serve(
    settings: Settings, *, compile: bool = True, on_started: Callable[[Started], None] = lambda started: None
) -> int:
    """Serves until SIGTERM or SIGINT arrives, even if that is during the start. A second signal ends all processes at
    once.

    Must be called in the main thread of a process without other threads.

    Args:
        compile: true to run a compile worker. If false, builds wait for one that runs elsewhere.
        on_started: called once, when the server accepts requests.

    Returns:
        The exit status: 0, or 128 plus the number of the second signal.

    Raises:
        Conflict: a port is in use.
        Unsupported: the machine of a worker cannot run its target.
        InvalidInput: other machines can reach the address, and there is no API key; or the certificate is missing.
        NotStarted: the server died before it accepted requests.
        DataUnusable: the data directory is not writable.
        OctetError: the database or the store cannot be opened.
    """
    return asyncio.run(_serve(settings, compile, on_started))


async def _serve(settings: Settings, compile: bool, on_started: Callable[[Started], None]) -> int:
    loop = asyncio.get_running_loop()
    signals: asyncio.Queue[int] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.put_nowait, number)
    with ExitStack() as stack:
        roles.check(settings, detect_host())
        # with a database URL, the control plane makes this check, because it connects to the database
        if settings.database_url is None:
            check_exposure(settings)
        listeners = {"http": stack.enter_context(_listen(settings.host, settings.port))}
        if settings.grpc:
            listeners["grpc"] = stack.enter_context(_listen(settings.host, settings.port_of_grpc))
        check_writable(settings.data_dir)  # this creates the folder, so it must come after the ports are reserved
        links = {name: stack.enter_context(_link()) for name in ("control", "preprocess")}
        supervisor = _Supervisor(settings, listeners, links, compile, on_started)
        return await supervisor.run(signals)


class _Supervisor:
    """Supervises the processes that serve: handles their start, readiness and end."""

    def __init__(
        self,
        settings: Settings,
        listeners: Mapping[str, socket.socket],
        links: Mapping[str, socket.socket],
        compile: bool,
        on_started: Callable[[Started], None],
    ) -> None:
        self._settings, self._listeners, self._links, self._compile = settings, listeners, links, compile
        self._on_started: Callable[[Started], None] | None = on_started
        self._link_addresses: dict[str, bytes] = {name: each.getsockname() for name, each in links.items()}
        # The actual ports, if port 0 was requested. Children close the sockets that they do not use.
        names = {"http": "port", "grpc": "grpc_port"}
        self._ports = {names[kind]: int(listener.getsockname()[1]) for kind, listener in listeners.items()}
        self._systemd = ServiceManager()
        self._running = RunningCalls()
        self._calls = CallWatch(self._running)
        self._crashes = crashes_of(settings)
        self._has_gpus = settings.role is not Role.API and bool(detect_gpus().cards)
        self._certificate = certificate_of(settings)
        if self._certificate is not None:
            program.require_tls()
        self._standby = Standby(listeners["http"], self._certificate.context if self._certificate else None)
        grace_s = settings.grace_s + _PATIENCE_S
        self._addresses = Addresses()
        self._tenants = TenantProcesses(
            settings, self._addresses, grace_s=grace_s, uses_gpus=self._has_gpus, on_crash=self._note_crash
        )
        self._data_plane = SupervisedProcess(
            "data plane",
            self._be_data_plane,
            grace_s=grace_s,
            keep=[each.fileno() for each in (*links.values(), *listeners.values())],
            on_ready=self._standby.end,
            on_want=self._preprocessor_is_wanted,
            on_end=self._data_plane_ended,
            silence_s=settings.watchdog_s,
            watch=self._calls.look,
            last_words=program.GIVE_UP,
        )
        self._control_plane = SupervisedProcess(
            "control plane",
            self._be_control_plane,
            grace_s=grace_s,
            on_ready=self._control_plane_is_ready,
            on_want=self._compiler_is_wanted,
            on_plane=self._tenants.want,
            on_end=lambda end: self._on_started is None,  # restarts the process, unless the first one could not start
            silence_s=settings.watchdog_s,
        )
        self._compile_worker = SupervisedProcess(
            "compile worker",
            self._be_compile_worker,
            grace_s=grace_s,
            on_demand=True,
            silence_s=settings.watchdog_s,
        )
        self._preprocessor = SupervisedProcess(
            "preprocessor", self._be_preprocessor, on_demand=True, silence_s=settings.watchdog_s
        )
        self._children = [self._data_plane, self._control_plane, self._compile_worker, self._preprocessor]

    async def run(self, signals: asyncio.Queue[int]) -> int:
        serving = asyncio.ensure_future(self._data_plane.run())
        stopping = asyncio.ensure_future(self._stop_when(signals, serving))
        living = asyncio.ensure_future(self._keep_telling_systemd())
        # Without this, garbage collection in a child would write to all pages that the child shares with its parent, so
        # that the kernel would copy these pages.
        gc.freeze()
        running = asyncio.gather(
            serving, self._control_plane.run(), self._compile_worker.run(), self._preprocessor.run()
        )
        try:
            await running
            # by now the public data plane has answered all requests that it forwarded to the tenants' data planes
            await self._tenants.stop()
            return stopping.result() if stopping.done() else 0
        finally:
            stopping.cancel()
            living.cancel()
            for child in self._children:  # if one child ended and must not be restarted, the others still run
                child.kill()
            self._tenants.kill()
            self._standby.end()

    async def _stop_when(self, signals: asyncio.Queue[int], serving: asyncio.Future[None]) -> int:
        await signals.get()
        self._systemd.stopping()
        if self._settings.role is Role.WORKER:
            self._control_plane.stop()
            await asyncio.sleep(roles.NOTICE_S)
        self._standby.begin("the server is stopping")
        self._data_plane.stop()
        # The data plane still answers requests on open connections, and needs the control plane for some of them.
        await asyncio.wait([serving], timeout=_PARTING_S)
        for child in (self._control_plane, self._compile_worker, self._preprocessor):
            child.stop()
        number = await signals.get()
        for child in self._children:
            child.kill()
        self._tenants.kill()
        return 128 + number

    async def _keep_telling_systemd(self) -> None:
        """Sends heartbeats to systemd, which restarts this process if they stop."""
        while (period_s := self._systemd.watchdog_s) is not None:
            self._systemd.alive()
            await asyncio.sleep(period_s)

    def _be_data_plane(self, ready: Ready) -> None:
        settings = self._settings
        raise_descriptors()
        messages = [(orders.configure(settings, "the server is starting"), b"")]
        if self._certificate is not None:
            pair = self._certificate.pair()
            messages.append(orders.certificate(pair.cert_pem, pair.key_pem))
        readable = folder_of_front(settings) if settings.plane_per_tenant else settings.store_dir
        readable.mkdir(parents=True, exist_ok=True)
        ready()
        inherited = {name: each.fileno() for name, each in (*self._listeners.items(), *self._links.items())}
        inherited |= {"running": self._running.descriptor, "held": ready.descriptor}
        # if each tenant has its own data plane, the tenants' data planes load the models
        uses_gpus = self._has_gpus and not settings.plane_per_tenant
        program.become(inherited, [readable], program.writable(settings), messages, uses_gpus=uses_gpus)

    def _be_control_plane(self, ready: Ready) -> None:
        gc.disable()  # imports create no garbage, and collection takes a fifth of their time
        from service.api.ops.server import run

        gc.freeze()
        gc.enable()
        settings = self._settings.model_copy(update=self._ports)
        run(
            settings,
            self._link_addresses["control"],
            self._certificate,
            ready,
            self._addresses,
            self._tenants.wanted,
        )

    def _be_compile_worker(self, ready: Ready) -> None:
        from service.workers.compile_worker import run_until_signaled

        run_until_signaled(self._settings, on_started=lambda _: ready(), is_lasting=False, beat=ready.beat)

    def _be_preprocessor(self, ready: Ready) -> None:
        from service.workers.preprocess.process import run

        run(self._link_addresses["preprocess"], ready)

    def _preprocessor_is_wanted(self) -> None:
        self._preprocessor.want()

    def _compiler_is_wanted(self) -> None:
        if self._compile:
            self._compile_worker.want()

    def _control_plane_is_ready(self) -> None:
        if self._on_started is None:
            _logger.warning("the control plane is ready again")
            return
        on_started, self._on_started = self._on_started, None
        machine = detect_host()
        if machine.best is None and self._settings.role is not Role.API:
            _logger.warning("%s; this server cannot run predictions", machine.why_none)
        findings = tuple(check()) if self._compile else ()
        for finding in findings:
            _report(finding, self._settings)
        self._systemd.ready()
        on_started(Started(self._settings.host, self._ports["port"], self._ports.get("grpc_port"), machine, findings))

    def _data_plane_ended(self, end: End) -> bool:
        """Returns true if the data plane must be restarted. Returns false if it could not start and no model caused
        this.
        """
        self._standby.begin(f"the data plane ended ({end}) and is being restarted")
        ran = self._note_crash(end, self._running, self._calls, "the data plane")
        return ran or (end.error is None and end.status != _CANNOT_START)

    def _note_crash(self, end: End, running: RunningCalls, calls: CallWatch, which: str) -> bool:
        """Records a crash or hang. Returns true if a model that the data plane ran caused its end."""
        hung, ran = list(calls.hung), running.marked_artifacts()
        running.clear()
        calls.clear()
        guilty = hung if end.hang else ran
        if not guilty or (-end.status in _FROM_OUTSIDE and not hung):
            return False
        for artifact, record in self._crashes.note(guilty, str(end)).items():
            _logger.error(
                "%s %s (%s) while artifact %s ran: %s",
                which,
                "was ended" if end.hang else "crashed",
                end,
                artifact,
                "it is in quarantine now"
                if record.is_quarantined
                else f"crash {len(record.crashes)} of {self._settings.max_crashes} before it is put in quarantine",
            )
        return True


def _link() -> socket.socket:
    """Returns a socket on which the data plane accepts the connection of another process of this server. The kernel
    chooses the socket's name, in the abstract namespace, so that no file is left behind. The data plane checks which
    process connects.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind("")
    listener.listen()
    listener.setblocking(False)
    return listener


def _listen(host: str, port: int) -> socket.socket:
    """Binds a listening socket. This is the first step of the start, so that a second server on the same port fails
    without side effects.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except socket.gaierror as error:
        raise InvalidInput(
            f"{host!r} is not an address to listen on: {error.strerror}", hint="--host 127.0.0.1"
        ) from error
    except OSError as error:
        raise Conflict(
            f"cannot listen on {host}:{port}: {error.strerror}", hint="choose another --port; 0 chooses a free one"
        ) from error
    notice_lost_clients(listener)
    # a blocking accept would stop the processes that share this socket from doing other work
    listener.setblocking(False)
    return listener


def _report(finding: Finding, settings: Settings) -> None:
    if finding.available:
        return
    consequence = "which is allowed" if settings.allow_unsandboxed else "so builds are refused"
    _logger.warning(
        "no %s (%s), %s: a model file could do this: %s", finding.name, finding.detail, consequence, finding.lost
    )
