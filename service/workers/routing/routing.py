"""What an API's data plane is told of the cluster, kept up to date; and connections for it to workers."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn, Protocol

from service.core.errors import DatabaseUnreachable, NotFound, NotReady, OctetError, UnknownTarget
from service.core.settings import Settings
from service.core.target import TARGETS, Target
from service.core.worker import Worker, WorkerState, place_of
from service.db.bell import Bell, Watch
from service.workers.data_plane import orders
from service.workers.data_plane.link import connected_to
from service.workers.data_plane.table import Table
from service.workers.inference.following import Following
from service.workers.inference.inventory import Indexed
from service.workers.inference.ports import Changes
from service.workers.inference.routes import Name, Reference
from service.workers.inference.single_flight import SingleFlight
from service.workers.routing.loading import have_all
from service.workers.routing.members import Members
from service.workers.routing.security import Security, security_of
from service.workers.routing.servable import Servable, targets_of

_logger = logging.getLogger(__name__)
_LOOK_EVERY_S = 0.1  # whether there is anything new; who does not ring is looked for less often
_CONNECT_S = 2.0


class Follower(Protocol):
    """What chooses a worker for each request: `service.workers.data_plane.plane.DataPlane`."""

    def follow(self, table: Table) -> None:
        """Has it know what has changed in the table."""

    def order(self, members: dict[str, Any], data: bytes = b"") -> None:
        """What stands until another order of this type."""


class Routing:
    """For one event loop; whatever blocks runs in a thread."""

    def __init__(
        self,
        members: Members,
        servable: Servable,
        plane: Follower,
        bell: Bell,
        security: Callable[[], Security],
        heartbeat_s: float,
        changes: Changes | None = None,
    ) -> None:
        """
        Args:
            plane: is told who there is.
            bell: rung where a worker comes, goes or loads, and where builds end.
            security: how workers are spoken to.
            changes: of what the tables say of models; None where nobody tells.
        """
        self._members, self._servable, self._plane, self._bell = members, servable, plane, bell
        self._security, self._heartbeat_s = security, heartbeat_s
        self._workers: Mapping[str, Worker] = {}
        self._refused: Mapping[str, str] = {}  # why others that are there are sent nothing, by their ids
        self._distrusted: dict[str, str] = {}  # why handshakes with them failed
        self._names: set[Name] = set()  # that were asked for
        self._table = Table()
        self._targets: Mapping[str, Collection[str]] = {}  # of the pools that are there
        self._following = Following(changes)
        self._resolving: SingleFlight[Name, None] = SingleFlight()
        self._has_looked = asyncio.Event()

    async def run(self) -> None:
        """Follows the tables, until canceled. While they cannot be read, what was said stands."""
        watch = Watch(self._bell, self._heartbeat_s / 4)
        was_read = True
        self._tell()  # or the data plane would not know that it is a router
        while True:
            if watch.is_due():
                try:
                    await self._look()
                    was_read = True
                except OctetError as error:
                    if was_read:
                        _logger.warning("the workers are those that were there: %s", error)
                    was_read = False
                except Exception:
                    _logger.exception("the workers could not be looked for")
            await asyncio.sleep(_LOOK_EVERY_S)

    async def has_looked(self) -> None:
        """Returns when the data plane is told who there is."""
        await self._has_looked.wait()

    async def resolve(self, model: str, version: Reference = None) -> None:
        """Has the data plane know which pools can serve a name.

        Raises:
            NotFound: there is no such model, version or alias.
            NotReady: no pool that is there can; the message says why.
        """
        name = model, version
        await self._resolving.join(name, lambda: self._resolve(name))

    async def connect(self, worker: str) -> socket.socket:
        """A TCP connection to a worker, which does not block, for the caller.

        Raises:
            NotReady: it cannot be reached within two seconds, or is gone.
        """
        member = self._workers.get(worker)
        if member is None or member.address is None:
            raise NotReady(f"worker {worker} is gone", hint="try again later")
        host, port, _ = place_of(member.address)
        try:
            async with asyncio.timeout(_CONNECT_S):
                return await connected_to(host, port)
        except (OSError, TimeoutError) as error:
            why = error if isinstance(error, OSError) and str(error) else f"no answer in {_CONNECT_S:g} s"
            raise NotReady(f"worker {worker} cannot be reached at {member.address}: {why}") from error

    def distrusted(self, worker: str, reason: str) -> None:
        """The data plane could not make sure who a worker is; no reason: now it could."""
        if not reason:
            self._distrusted.pop(worker, None)
        elif worker in self._workers:
            self._distrusted[worker] = f"its certificate is refused: {reason}"
            _logger.error("worker %s is sent nothing: %s", worker, self._distrusted[worker])

    def refusal(self, worker: str) -> str | None:
        """Why a worker is sent nothing though it is there; None where it is."""
        return self._refused.get(worker) or self._distrusted.get(worker)

    async def index(self) -> list[Indexed]:
        """Every version of every model, and whether a worker has it in memory; by name, the oldest version first."""
        return await asyncio.to_thread(self._servable.index, self._workers.values())

    async def load(self, model: str) -> None:
        """Has all ready workers of the pools that can serve a model load it.

        Raises:
            NotFound: there is no such model.
            NotReady: no pool that is there can serve it, or a worker did not load it; the message says why.
        """
        workers = await asyncio.to_thread(self._members.look)
        pools = await asyncio.to_thread(self._servable.pools, model, None, targets_of(workers.values()))
        asked = [each for each in _ready(workers.values()) if each.pool in pools]
        await asyncio.to_thread(have_all, asked, "load", model, self._security())

    async def unload(self, model: str) -> None:
        """Has all ready workers unload a model, and refuse requests for it until a load.

        Raises:
            NotFound: there is no such model.
            NotReady: no worker is there, or one did not unload it; the message says why.
        """
        await asyncio.to_thread(self._servable.check_known, model)
        workers = await asyncio.to_thread(self._members.look)
        asked = _ready(workers.values())
        if not asked:
            raise NotReady("no worker is there", hint="octet worker starts one")
        await asyncio.to_thread(have_all, asked, "unload", model, self._security())

    def targets(self) -> list[Target]:
        """Those that workers serve; of CPUs first, the best first.

        Raises:
            UnknownTarget: no worker is there.
        """
        there = {worker.target for worker in self._workers.values()}
        found = sorted((each for each in TARGETS if each.name in there), key=lambda target: target.device != "cpu")
        return found or _no_worker()

    def best_target(self) -> Target:
        """The best target of the CPUs that workers serve: what a model is built for where nobody says it.

        Raises:
            UnknownTarget: no worker is there.
        """
        best = self.targets()[0]
        return best if best.device == "cpu" else _no_worker()

    async def _look(self) -> None:
        workers = self._admitted(await asyncio.to_thread(self._members.look))
        for id in workers.keys() - self._workers.keys():
            _logger.info("worker %s of pool %s is there", id, workers[id].pool)
        for id in self._workers.keys() - workers.keys():
            _logger.warning("worker %s of pool %s is gone", id, self._workers[id].pool)
        self._workers = workers
        self._distrusted = {id: why for id, why in self._distrusted.items() if id in workers}
        security = self._security()
        self._table.set_workers(
            orders.Worker(
                each.id,
                each.pool or "",
                max(1, each.capacity),
                each.state.value,
                each.loaded,
                server_name=security.server_name(each),
            )
            for each in workers.values()
        )
        if (targets := targets_of(workers.values())) != self._targets:
            self._targets = targets
            self._following.doubt()
        for name in await self._following.due(self._names, self._resolving):
            try:
                await self._look_at(name)
            except DatabaseUnreachable:
                self._following.doubt()  # what was told of changes is not told again
                raise
            except (NotFound, NotReady):
                self._names.discard(name)  # who asks for it is told why
                self._table.drop_model(*_said(name))
        self._tell()
        self._has_looked.set()

    def _admitted(self, workers: Mapping[str, Worker]) -> dict[str, Worker]:
        """Without those that are not spoken to as the settings say."""
        security = self._security()
        refused = {id: why for id, each in workers.items() if (why := security.refusal(each)) is not None}
        for id in refused.keys() - self._refused.keys():
            _logger.error("worker %s of pool %s is sent nothing: %s", id, workers[id].pool, refused[id])
        self._refused = refused
        return {id: each for id, each in workers.items() if id not in refused}

    async def _resolve(self, name: Name) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CONNECT_S):
                await self._has_looked.wait()
        await self._look_at(name)
        self._tell()

    async def _look_at(self, name: Name) -> None:
        self._following.unsettle(name)
        try:
            pools = await asyncio.to_thread(self._servable.pools, *name, self._targets)
        except NotReady as error:
            for id, why in sorted(self._refused.items())[:1]:
                raise type(error)(f"{error.message}; worker {id} is sent nothing: {why}", hint=error.hint) from error
            raise
        self._names.add(name)
        self._following.settle(name)
        self._table.put_model(orders.Servable(*_said(name), tuple(pools)))

    def _tell(self) -> None:
        security = self._security()
        self._plane.order(*orders.authority(security.authorities()))
        self._table.set_key(security.key)
        self._plane.follow(self._table)


def _ready(workers: Collection[Worker]) -> list[Worker]:
    """By id."""
    there = [each for each in workers if each.state is WorkerState.READY and each.target]
    return sorted(there, key=lambda each: each.id)


def _said(name: Name) -> tuple[str, str]:
    """As orders have it."""
    model, version = name
    return model, "" if version is None else str(version)


def _no_worker() -> NoReturn:
    raise UnknownTarget(
        "no worker is there whose target a model could be built for", hint="name a target, or start octet worker"
    )


def routing_of(
    settings: Settings, members: Members, servable: Servable, plane: Follower, bell: Bell, changes: Changes
) -> Routing:
    """The routing that settings ask for."""
    beat_s = settings.worker_heartbeat_s
    return Routing(members, servable, plane, bell, partial(security_of, settings), beat_s, changes)
