"""What an API's data plane is told of the cluster, kept up to date; and connections for it to workers."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import NoReturn, Protocol

from service.core.errors import DatabaseUnreachable, NotFound, NotReady, OctetError, UnknownTarget
from service.core.settings import Settings
from service.core.target import TARGETS, Target
from service.core.worker import Worker, WorkerState
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
from service.workers.routing.servable import Servable, targets_of

_logger = logging.getLogger(__name__)
_LOOK_EVERY_S = 0.1  # whether there is anything new; who does not ring is looked for less often
_CONNECT_S = 2.0


class Follower(Protocol):
    """What chooses a worker for each request: `service.workers.data_plane.plane.DataPlane`."""

    def follow(self, table: Table) -> None:
        """Has it know what has changed in the table."""


class Routing:
    """For one event loop; whatever blocks runs in a thread."""

    def __init__(
        self,
        members: Members,
        servable: Servable,
        plane: Follower,
        bell: Bell,
        cluster_key: Callable[[], str],
        heartbeat_s: float,
        changes: Changes | None = None,
    ) -> None:
        """
        Args:
            plane: is told who there is.
            bell: rung where a worker comes, goes or loads, and where builds end.
            cluster_key: what workers know the API by.
            changes: of what the tables say of models; None where nobody tells.
        """
        self._members, self._servable, self._plane, self._bell = members, servable, plane, bell
        self._cluster_key, self._heartbeat_s = cluster_key, heartbeat_s
        self._workers: Mapping[str, Worker] = {}
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
        host, _, port = member.address.rpartition(":")
        try:
            async with asyncio.timeout(_CONNECT_S):
                return await connected_to(host.strip("[]"), int(port))
        except (OSError, TimeoutError) as error:
            why = error if isinstance(error, OSError) and str(error) else f"no answer in {_CONNECT_S:g} s"
            raise NotReady(f"worker {worker} cannot be reached at {member.address}: {why}") from error

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
        await asyncio.to_thread(have_all, asked, "load", model, self._cluster_key())

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
        await asyncio.to_thread(have_all, asked, "unload", model, self._cluster_key())

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
        workers = await asyncio.to_thread(self._members.look)
        for id in workers.keys() - self._workers.keys():
            _logger.info("worker %s of pool %s is there", id, workers[id].pool)
        for id in self._workers.keys() - workers.keys():
            _logger.warning("worker %s of pool %s is gone", id, self._workers[id].pool)
        self._workers = workers
        self._table.set_workers(
            orders.Worker(each.id, each.pool or "", max(1, each.capacity), each.state.value, each.loaded)
            for each in workers.values()
        )
        if (targets := targets_of(workers.values())) != self._targets:
            self._targets = targets
            self._following.doubt()
        for name in await self._following.due(self._names):
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

    async def _resolve(self, name: Name) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CONNECT_S):
                await self._has_looked.wait()
        await self._look_at(name)
        self._tell()

    async def _look_at(self, name: Name) -> None:
        pools = await asyncio.to_thread(self._servable.pools, *name, self._targets)
        self._names.add(name)
        self._table.put_model(orders.Servable(*_said(name), tuple(pools)))

    def _tell(self) -> None:
        self._table.set_key(self._cluster_key())
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
    return Routing(members, servable, plane, bell, lambda: settings.key_of_cluster, beat_s, changes)
