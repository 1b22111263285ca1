"""The control plane's process: serves the API on connections that the data plane hands over."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from functools import partial
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.server import HANDLED_SIGNALS

from service.api.assembly import assemble
from service.api.data_plane.listener import Listener
from service.api.ops.housekeeping import Housekeeping
from service.api.ops.lifetime import at_work, sampler_of
from service.api.ops.verifying import verifying
from service.api.services import Services
from service.core.cluster import roles
from service.core.cluster.certificate import Certificate
from service.core.cluster.queueing import scheduling_of
from service.core.cluster.settings import Role
from service.core.cluster.worker import WorkerKind
from service.core.settings import Settings
from service.core.system.heap import use_one_heap
from service.core.system.logs import Seldom
from service.core.target import detect_host, named_features
from service.workers.data_plane.plane import DataPlane
from service.workers.presence import Presence
from service.workers.supervised import BEAT_EVERY_S, Ready
from service.workers.tenant_planes import Addresses, TenantFiles, TenantPlanes, folder_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_logger = logging.getLogger(__name__)
_LOOK_S = 0.05
# Python's thread switch interval while modules are imported. With the default of 5 ms, the importing thread would delay
# every database statement of another thread by that time.
_SWITCH_S = 0.0002


def run(
    settings: Settings,
    address: bytes,
    certificate: Certificate | None,
    ready: Ready,
    addresses: Addresses | None = None,
    tenants: Collection[str] = (),
) -> None:
    """Serves until SIGTERM or SIGINT arrives, even if that is during the start. Must be called in the main thread.

    Args:
        address: the address on which the data plane accepts the control plane's connection.
        certificate: the certificate of the public ports; None if they use plain text.
        ready: called once, when the data plane has its configuration. `ready.want` is called while a build waits for a
            compiler.
        addresses: the addresses of the tenants' data planes, if each tenant has one (`plane_per_tenant`).
        tenants: the tenants whose data planes are running.

    Raises:
        OctetError: the database or the store cannot be opened.
    """
    use_one_heap()
    with ExitStack() as stack:
        signals = stack.enter_context(_Signals())
        faulthandler.enable()  # logs a traceback if the process crashes
        logging.getLogger("uvicorn.error").addFilter(Seldom())  # malformed requests would fill the log
        host, plane = detect_host(), _plane(settings, address, ready, addresses, tenants)
        services = stack.enter_context(assemble(settings, host, plane, certificate, signals.database_lost))
        presence = _presence(services)
        if not signals.came:
            server = _Server(services, signals, ready, presence, stack)
            server.run()
            if server.failure is not None:
                raise server.failure


def _plane(
    settings: Settings, address: bytes, ready: Ready, addresses: Addresses | None, tenants: Collection[str]
) -> DataPlane | TenantPlanes:
    public = DataPlane(address)
    if addresses is None or not settings.plane_per_tenant:
        return public
    files = TenantFiles(partial(folder_of, settings))
    return TenantPlanes(public, addresses, _Processes(ready), files, tenants)


class _Processes:
    """The supervisor's interface for `TenantPlanes`: starts and stops data planes."""

    def __init__(self, ready: Ready) -> None:
        self._ready = ready

    def want(self, tenant: str, wanted: bool) -> None:
        self._ready.want_plane(tenant, wanted)


def _presence(services: Services) -> Presence | None:
    """Returns the entry by which other processes see this process. None for an API, and on a machine that can run no
    target.
    """
    settings, host = services.settings, services.host
    if not services.registry.targets:
        return None
    if settings.role is not Role.WORKER:
        return Presence(services.workers, WorkerKind.INFERENCE, settings.heartbeat_s)
    target = roles.target_of(settings, host)
    presence = Presence(
        services.workers,
        WorkerKind.INFERENCE,
        settings.worker_heartbeat_s,
        target=target.name,
        pool=roles.pool_of(settings, host),
        address=roles.address_of(settings),
        features=named_features(host),
        capacity=scheduling_of(settings).instances_on(target.device),
    )
    services.registry.on_names = presence.set_loaded
    return presence


class _Signals:
    """A context manager that records SIGTERM and SIGINT, also before the server exists.

    The caller checks `came` between two steps of the start. So a step that has begun is always completed.
    """

    def __init__(self) -> None:
        self.came = False

    def __enter__(self) -> _Signals:
        self._before = {number: signal.signal(number, self._record) for number in HANDLED_SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def database_lost(self) -> None:
        """Ends this process as SIGTERM does. The next process recreates the database. May be called from any thread."""
        if not self.came:
            _logger.error("the database file is gone: restarting the server, which recreates it from the store's index")
            os.kill(os.getpid(), signal.SIGTERM)

    def _record(self, number: int, frame: FrameType | None) -> None:
        self.came = True


def _application(services: Services) -> ASGIApp:
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    gc.disable()  # no garbage collection during this import, as during the imports at the start
    try:
        from service.api.app import create_app

        app = create_app(services)
    finally:
        gc.freeze()
        gc.enable()
        sys.setswitchinterval(usual_s)
    return app


class _LazyApplication:
    """The application, imported in a thread. During the import, the event loop can load models, because the data
    plane's requests do not need the application. HTTP requests wait for the import.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._loading: asyncio.Future[ASGIApp] | None = None

    async def load(self) -> ASGIApp:
        """Returns the application. Raises the exception that prevented its creation, if any."""
        if self._loading is None:
            self._loading = asyncio.ensure_future(asyncio.to_thread(_application, self._services))
        return await asyncio.shield(self._loading)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = await self.load()
        await app(scope, receive, send)


class _Server(uvicorn.Server):
    """uvicorn without a listening socket. Notifies all waiting tasks when the process is about to stop.

    Attributes:
        failure: the exception that prevented the creation of the application.
    """

    def __init__(
        self,
        services: Services,
        signals: _Signals,
        ready: Ready,
        presence: Presence | None = None,
        stack: ExitStack | None = None,
    ) -> None:
        """
        Args:
            presence: entered in `stack` as soon as the server is ready for requests.
        """
        self._presence, self._stack = presence, stack or ExitStack()
        self._app = _LazyApplication(services)
        super().__init__(
            uvicorn.Config(
                self._app,
                interface="asgi3",
                lifespan="off",
                ws="none",
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=True,
                forwarded_allow_ips="*",  # the data plane sets these headers, and removes those of clients
                timeout_graceful_shutdown=max(1, round(services.settings.grace_s)),
            )
        )
        self._services, self._signals, self._ready = services, signals, ready
        self._listener = Listener(services, self._take)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._work = AsyncExitStack()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.failure: Exception | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._services.plane.listener = self._listener
        self._welcome = await self._work.enter_async_context(at_work(self._services))
        await super().startup([])
        starting = self._stay_unready_until_seen()
        self._do(self._keep_beating())
        # at this point it is decided whether models are loaded before requests are accepted
        self._do(self._listener.keep_telling())
        self._do(self._announce(starting))
        self._do(Housekeeping(self._services, self._ready.want).keep())
        self._listener.sampler = sampler_of(self._services)
        if self._listener.sampler is not None:
            self._do(self._listener.sampler.run())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._services.settings.role is Role.WORKER:
            await asyncio.sleep(roles.NOTICE_S)
        await super().shutdown()
        await self._work.aclose()
        for task in self._tasks:
            task.cancel()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Replaces uvicorn's method, which raises the signal again afterwards. That would end the process before its
        cleanup.
        """
        before = {number: signal.signal(number, self.handle_exit) for number in HANDLED_SIGNALS}
        if self._signals.came:  # a signal arrived before these handlers were installed
            self.handle_exit(signal.SIGTERM, None)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._signals.came = True
        if not self._services.stopping.is_set() and self._loop is not None:
            self._loop.call_soon_threadsafe(self._drain)
        self._services.stopping.set()  # makes requests that wait for a build end now, not after the grace period
        super().handle_exit(sig, frame)

    def _drain(self) -> None:
        """Announces that this server stops, to the routers that send it requests and to readiness probes."""
        if self._presence is not None:
            self._presence.set_draining()
        self._listener.tell()

    async def _keep_beating(self) -> None:
        while True:
            self._ready.beat()
            await asyncio.sleep(BEAT_EVERY_S)

    def _stay_unready_until_seen(self) -> ExitStack:
        """Keeps this server not ready until other servers see it, because a rolling update ends the old process once
        the new process is ready.
        """
        stack = ExitStack()
        if self._services.settings.role in (Role.API, Role.WORKER):
            stack.enter_context(self._services.registry.starting("the server is starting"))
        return stack

    async def _announce(self, starting: ExitStack) -> None:
        with starting:
            await self._start()

    async def _start(self) -> None:
        try:
            await self._services.plane.reached()
            # the response shows that the data plane received everything that was sent before
            await self._services.plane.gather()
            await self._app.load()
        except Exception as error:
            self.failure, self.should_exit = error, True
        if not self.should_exit:  # a server that is stopping accepts no requests, so it must not be announced
            self._ready()
            await self._join()

    async def _join(self) -> None:
        """Announces this process to the other processes of the cluster, and waits until this process sees them. Called
        when the models to preload are loaded.
        """
        if self._services.routing is not None:
            await self._services.routing.has_looked()
        if self._presence is None:
            return
        await self._welcome.wait()
        if not self.should_exit:
            self._stack.enter_context(self._presence)
            while not self._presence.is_listed and not self.should_exit:
                await asyncio.sleep(_LOOK_S)
            self._stack.enter_context(verifying(self._services, self._presence.id))

    def _take(self, descriptor: int) -> None:
        """Serves a connection that the data plane handed over."""
        connection = socket.socket(fileno=descriptor)
        connection.setblocking(False)
        protocol: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        make = partial(
            protocol,
            config=self.config,
            server_state=self.server_state,
            app_state={},
        )
        self._do(asyncio.get_running_loop().connect_accepted_socket(make, connection))

    def _do(self, work: Any) -> None:
        async def run() -> None:
            with suppress(OSError):  # the connection has been closed
                await work

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
