"""Keeps the cluster state of an API's data plane up to date, and opens connections to workers for it."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn, Protocol

from service.core.cluster.worker import Worker, WorkerState, parse_address
from service.core.errors import DatabaseUnreachable, NotFound, NotReady, OctetError, UnknownTarget
from service.core.settings import Settings
from service.core.target import TARGETS, Target
from service.db.engines.notifications import Notifications, Watch
from service.workers.data_plane import orders
from service.workers.data_plane.link import connected_to
from service.workers.data_plane.table import Table
from service.workers.inference.following import Following
from service.workers.inference.inventory import Indexed
from service.workers.inference.ports import Changes
from service.workers.inference.routes import Name, Reference
from service.workers.inference.single_flight import SingleFlight
from service.workers.routing.loading import run_on_all
from service.workers.routing.members import Members
from service.workers.routing.security import Security, security_of
from service.workers.routing.servable import Servable, targets_of

_logger = logging.getLogger(__name__)
_LOOK_EVERY_S = 0.1  # the interval of checks for changes; without notifications, the tables are read less often
_CONNECT_S = 2.0


class Follower(Protocol):
    """Chooses a worker for each request. `service.workers.data_plane.plane.DataPlane` implements this interface."""

    def follow(self, table: Table) -> None:
        """Sends the changes of the table."""

    def order(self, members: dict[str, Any], data: bytes = b"") -> None:
        """Sends an order that applies until another order of its type."""


class Routing:
    """Sends the workers and the servable models to the data plane. For one event loop; blocking work runs in a
    thread.
    """

    def __init__(
        self,
        members: Members,
        servable: Servable,
        plane: Follower,
        notifications: Notifications,
        security: Callable[[], Security],
        heartbeat_s: float,
        changes: Changes | None = None,
    ) -> None:
        """
        Args:
            plane: receives the table of workers and models.
            notifications: arrive when a worker starts, ends or loads a model, and when a build ends.
            security: returns how to connect to workers.
            changes: reports the models whose rows have changed; None if changes are not reported.
        """
        self._members, self._servable, self._plane, self._notifications = members, servable, plane, notifications
        self._security, self._heartbeat_s = security, heartbeat_s
        self._workers: Mapping[str, Worker] = {}
        self._refused: Mapping[str, str] = {}  # the running workers that get no requests, by id, with the reason
        self._distrusted: dict[str, str] = {}  # the workers whose TLS handshake failed, by id, with the reason
        self._names: set[Name] = set()  # the requested names
        self._table = Table()
        self._targets: Mapping[str, Collection[str]] = {}  # the targets of the running pools
        self._following = Following(changes)
        self._resolving: SingleFlight[Name, None] = SingleFlight()
        self._has_looked = asyncio.Event()

    async def run(self) -> None:
        """Follows the tables until canceled. While the tables cannot be read, the data plane uses the last state."""
        watch = Watch(self._notifications, self._heartbeat_s / 4)
        was_read = True
        self._send_table()  # sent at once, so that the data plane is a router from the start
        while True:
            if watch.is_due():
                try:
                    await self._look()
                    was_read = True
                except OctetError as error:
                    if was_read:
                        _logger.warning(
                            "cannot read the table of workers; the rows that were read last are used: %s", error
                        )
                    was_read = False
                except Exception:
                    _logger.exception("cannot update the workers of the cluster")
            await asyncio.sleep(_LOOK_EVERY_S)

    async def has_looked(self) -> None:
        """Waits until the data plane has received the running workers."""
        await self._has_looked.wait()

    async def resolve(self, model: str, version: Reference = None) -> None:
        """Sends the data plane the pools that can serve a name.

        Raises:
            NotFound: the model, version or alias does not exist.
            NotReady: no running pool can serve the model; the message explains why.
        """
        name = model, version
        await self._resolving.join(name, lambda: self._resolve(name))

    async def connect(self, worker: str) -> socket.socket:
        """Opens a non-blocking TCP connection to a worker; the caller owns it.

        Raises:
            NotReady: the worker cannot be reached within two seconds, or has ended.
        """
        member = self._workers.get(worker)
        if member is None or member.address is None:
            raise NotReady(f"worker {worker} is gone", hint="try again later")
        host, port, _ = parse_address(member.address)
        try:
            async with asyncio.timeout(_CONNECT_S):
                return await connected_to(host, port)
        except (OSError, TimeoutError) as error:
            why = error if isinstance(error, OSError) and str(error) else f"no answer in {_CONNECT_S:g} s"
            raise NotReady(f"worker {worker} cannot be reached at {member.address}: {why}") from error

    def distrusted(self, worker: str, reason: str) -> None:
        """Records that the data plane could not authenticate a worker. An empty reason means that it now could."""
        if not reason:
            self._distrusted.pop(worker, None)
        elif worker in self._workers:
            self._distrusted[worker] = f"its certificate was rejected: {reason}"
            _logger.error("worker %s gets no requests: %s", worker, self._distrusted[worker])

    def refusal(self, worker: str) -> str | None:
        """Returns why a running worker gets no requests, or None if it gets them."""
        return self._refused.get(worker) or self._distrusted.get(worker)

    async def index(self) -> list[Indexed]:
        """Returns every version of every model, and whether a worker has it in memory, sorted by name, oldest version
        first.
        """
        return await asyncio.to_thread(self._servable.index, self._workers.values())

    async def load(self, model: str) -> None:
        """Makes all ready workers of the pools that can serve a model load it.

        Raises:
            NotFound: the model does not exist.
            NotReady: no running pool can serve the model, or a worker did not load it; the message explains why.
        """
        workers = await asyncio.to_thread(self._members.look)
        pools = await asyncio.to_thread(self._servable.pools, model, None, targets_of(workers.values()))
        ready = [each for each in _ready(workers.values()) if each.pool in pools]
        await asyncio.to_thread(run_on_all, ready, "load", model, self._security())

    async def unload(self, model: str) -> None:
        """Makes all ready workers unload a model, and refuse requests for it until it is loaded again.

        Raises:
            NotFound: the model does not exist.
            NotReady: no worker is running, or a worker did not unload the model; the message explains why.
        """
        await asyncio.to_thread(self._servable.check_exists, model)
        workers = await asyncio.to_thread(self._members.look)
        ready = _ready(workers.values())
        if not ready:
            raise NotReady("no worker is running", hint="octet worker starts one")
        await asyncio.to_thread(run_on_all, ready, "unload", model, self._security())

    def targets(self) -> list[Target]:
        """Returns the targets of the running workers: first the CPU targets, then the GPU targets, each with the best
        first.

        Raises:
            UnknownTarget: no worker is running.
        """
        running = {worker.target for worker in self._workers.values()}
        found = sorted((each for each in TARGETS if each.name in running), key=lambda target: target.device != "cpu")
        return found or _no_worker()

    def best_target(self) -> Target:
        """Returns the best CPU target of the running workers: the default target of a build.

        Raises:
            UnknownTarget: no worker with a CPU target is running.
        """
        best = self.targets()[0]
        return best if best.device == "cpu" else _no_worker()

    async def _look(self) -> None:
        workers = self._without_refused(await asyncio.to_thread(self._members.look))
        for id in workers.keys() - self._workers.keys():
            _logger.info("worker %s of pool %s joined", id, workers[id].pool)
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
            self._following.mark_all_due()
        for name in await self._following.due(self._names, self._resolving):
            try:
                await self._look_at(name)
            except DatabaseUnreachable:
                # marks all names as due, because the same changes are not reported again
                self._following.mark_all_due()
                raise
            except (NotFound, NotReady):
                self._names.discard(name)  # the next request for the name gets the reason
                self._table.drop_model(*_in_order(name))
        self._send_table()
        self._has_looked.set()

    def _without_refused(self, workers: Mapping[str, Worker]) -> dict[str, Worker]:
        """Returns the workers whose connections conform to the settings."""
        security = self._security()
        refused = {id: why for id, each in workers.items() if (why := security.refusal(each)) is not None}
        for id in refused.keys() - self._refused.keys():
            _logger.error("worker %s of pool %s gets no requests: %s", id, workers[id].pool, refused[id])
        self._refused = refused
        return {id: each for id, each in workers.items() if id not in refused}

    async def _resolve(self, name: Name) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CONNECT_S):
                await self._has_looked.wait()
        await self._look_at(name)
        self._send_table()

    async def _look_at(self, name: Name) -> None:
        self._following.mark_unresolved(name)
        try:
            pools = await asyncio.to_thread(self._servable.pools, *name, self._targets)
        except NotReady as error:
            for id, why in sorted(self._refused.items())[:1]:
                raise type(error)(f"{error.message}; worker {id} gets no requests: {why}", hint=error.hint) from error
            raise
        self._names.add(name)
        self._following.mark_resolved(name)
        self._table.put_model(orders.Servable(*_in_order(name), tuple(pools)))

    def _send_table(self) -> None:
        security = self._security()
        self._plane.order(*orders.authority(security.authorities()))
        self._table.set_key(security.key)
        self._plane.follow(self._table)


def _ready(workers: Collection[Worker]) -> list[Worker]:
    """Returns the ready workers, sorted by id."""
    running = [each for each in workers if each.state is WorkerState.READY and each.target]
    return sorted(running, key=lambda each: each.id)


def _in_order(name: Name) -> tuple[str, str]:
    """Returns the model and version in the form that orders use."""
    model, version = name
    return model, "" if version is None else str(version)


def _no_worker() -> NoReturn:
    raise UnknownTarget(
        "no running worker has a target that a model could be built for", hint="pass a target, or start octet worker"
    )


def routing_of(
    settings: Settings,
    members: Members,
    servable: Servable,
    plane: Follower,
    notifications: Notifications,
    changes: Changes,
) -> Routing:
    """Returns a `Routing` for these settings."""
    beat_s = settings.worker_heartbeat_s
    return Routing(members, servable, plane, notifications, partial(security_of, settings), beat_s, changes)
