"""The processes of the tenants' data planes. Each has its own sockets, its own table of running calls, and its own
preprocessing process, so that a hostile picture can reach only the tenant to whose model it was sent.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass

from service.core.cluster.running import RunningCalls
from service.core.settings import Settings
from service.workers.data_plane import orders, program
from service.workers.data_plane.program import raise_descriptors
from service.workers.supervised import End, Ready, SupervisedProcess
from service.workers.tenant_planes import Addresses, folder_of
from service.workers.watching import CallWatch

_logger = logging.getLogger(__name__)
_BACKLOG = 2048


@dataclass(frozen=True)
class _Child:
    process: SupervisedProcess
    preprocessor: SupervisedProcess
    task: asyncio.Task[None]
    stack: ExitStack


class TenantProcesses:
    """The data plane processes that the control plane wants. For the event loop of a process without other threads."""

    def __init__(
        self,
        settings: Settings,
        addresses: Addresses,
        *,
        grace_s: float,
        uses_gpus: bool,
        on_crash: Callable[[End, RunningCalls, CallWatch, str], object],
    ) -> None:
        """
        Args:
            on_crash: called when a data plane has crashed. The arguments are how it ended, its table of running calls,
                its watch for hung calls, and its name.
        """
        self._settings, self._addresses, self._grace_s, self._uses_gpus = settings, addresses, grace_s, uses_gpus
        self._on_crash = on_crash
        self._wanted: set[str] = set()
        self._children: dict[str, _Child] = {}
        self._is_stopping = False

    @property
    def wanted(self) -> Collection[str]:
        """The tenants whose data planes run or are about to start."""
        return sorted(self._wanted)

    def want(self, tenant: str, wanted: bool) -> None:
        """Starts the data plane of a tenant, or allows it to end."""
        child = self._children.get(tenant)
        if wanted:
            self._wanted.add(tenant)
            if child is None and not self._is_stopping:
                self._start(tenant)
        else:
            self._wanted.discard(tenant)
            if child is not None:
                child.process.stop()

    async def stop(self) -> None:
        """Makes all data planes end, and returns when they have ended."""
        self._is_stopping = True
        for child in self._children.values():
            child.process.stop()
        await asyncio.gather(*(child.task for child in self._children.values()), return_exceptions=True)

    def kill(self) -> None:
        self._is_stopping = True
        for child in self._children.values():
            child.process.kill()
            child.preprocessor.kill()

    def _start(self, tenant: str) -> None:
        stack, running = ExitStack(), RunningCalls()
        calls = CallWatch(running)
        stack.callback(running.close)
        control = stack.enter_context(_listening(self._addresses.control(tenant)))
        http = stack.enter_context(_listening(self._addresses.http(tenant)))
        preprocess = stack.enter_context(_listening(self._addresses.preprocess(tenant)))

        def be(ready: Ready) -> None:
            raise_descriptors()
            folder = folder_of(self._settings, tenant)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            ready()
            inherited = {"control": control.fileno(), "http": http.fileno(), "preprocess": preprocess.fileno()}
            inherited |= {"running": running.descriptor, "held": ready.descriptor}
            first = [(orders.configure(self._settings), b"")]
            program.become(inherited, [folder], [], first, uses_gpus=self._uses_gpus)

        def be_preprocessor(ready: Ready) -> None:
            from service.workers.preprocess.process import run

            run(self._addresses.preprocess(tenant), ready)

        whose = tenant or "the operator"
        name = f"data plane of {whose}"

        def ended(end: End) -> bool:
            self._on_crash(end, running, calls, f"the {name}")
            return True

        preprocessor = SupervisedProcess(
            f"preprocessor of {whose}", be_preprocessor, on_demand=True, silence_s=self._settings.watchdog_s
        )
        process = SupervisedProcess(
            name,
            be,
            grace_s=self._grace_s,
            keep=(control.fileno(), http.fileno(), preprocess.fileno()),
            on_want=preprocessor.want,
            on_end=ended,
            silence_s=self._settings.watchdog_s,
            watch=calls.look,
            last_words=program.GIVE_UP,
        )
        task = asyncio.create_task(_run(process, preprocessor))
        self._children[tenant] = _Child(process, preprocessor, task, stack)
        task.add_done_callback(lambda _: self._ended(tenant))

    def _ended(self, tenant: str) -> None:
        child = self._children.pop(tenant)
        child.stack.close()
        if not child.task.cancelled() and (error := child.task.exception()) is not None:
            _logger.error("the data plane of %s is not restarted: %s", tenant or "the operator", error)
        elif tenant in self._wanted and not self._is_stopping:  # the data plane was requested again while it ended
            self._start(tenant)


async def _run(data_plane: SupervisedProcess, preprocessor: SupervisedProcess) -> None:
    """Keeps a data plane running, and its preprocessing process while the data plane requests it."""
    preprocessing = asyncio.create_task(preprocessor.run())
    try:
        await data_plane.run()
    finally:
        preprocessor.stop()
        await preprocessing


def _listening(name: bytes) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(name)
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener
