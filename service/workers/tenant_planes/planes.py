"""The data planes of all tenants, and the public one that forwards to them, in the place of one that has all models."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from service.core.errors import NotReady
from service.core.tenant import owner_of
from service.workers.data_plane import orders
from service.workers.data_plane.plane import Answer, DataPlane, Found, Unheard
from service.workers.data_plane.table import Table
from service.workers.tenant_planes.files import TenantFiles
from service.workers.tenant_planes.member import Heard, Member, quiet
from service.workers.tenant_planes.places import Places, said
from service.workers.tenant_planes.reports import Model

_logger = logging.getLogger(__name__)
_PATIENCE_S = 2.0  # for a count of what a tenant's data plane did: others do not wait for one that hangs
_FIRST_REQUEST_S = 60.0  # of a connection
_LINGER_S = 10.0  # without models: what is unloaded is often loaded again
_CAPACITY = 1e6  # there is no other that could take what is too much for one
_READY = "ready"

Members = dict[str, Any]


class Processes(Protocol):
    """What starts data planes, and ends them: the supervisor."""

    def want(self, tenant: str, wanted: bool) -> None:
        """Has the data plane of a tenant run from now on, or end."""
        ...


class TenantPlanes(Heard):
    """Satisfies what `DataPlane` does, for one event loop. Has processes run for the tenants that have models loaded.

    Attributes:
        listener: who is told and asked.
    """

    def __init__(
        self, front: DataPlane, places: Places, processes: Processes, files: TenantFiles, running: Iterable[str] = ()
    ) -> None:
        """
        Args:
            front: the public one.
            running: tenants whose data planes are there, from an earlier control plane.
        """
        self._front, self._places, self._processes, self._files = front, places, processes, files
        self._front.listener = _Front(self)
        self.listener: Unheard = Unheard()
        self._there = list(running)
        self._members: dict[str, Member] = {}
        self._standing: dict[str, Members] = {}  # what each data plane is told, by type
        self._named: list[orders.Named] = []
        self._table = Table()  # the workers in it are data planes of tenants
        self._finding: dict[object, Member] = {}  # whose leftovers a task may end
        self._ending: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Reaches them, whenever they are there, until canceled."""
        for tenant in self._there:
            await asyncio.to_thread(self._files.clear, tenant)
            self._member(tenant)
        self._tell()  # or the public one would not know that it is a router
        try:
            await self._front.run()
        finally:
            for member in list(self._members.values()):
                await member.close()

    async def reached(self) -> None:
        """Waits until the public one is there, which has heard what stands."""
        await self._front.reached()

    async def load(self, order: Mapping[str, Any]) -> int:
        """As `DataPlane.load`, in the data plane of the model's tenant."""
        member = self._member(owner_of(order["model"]))
        member.begin()
        try:
            with self._files.lent(member.tenant, order) as lent:
                key = await member.plane.load(lent)
            member.models[key] = Model(order["model"], order["version"], order["target"])
            return key
        finally:
            member.end()
            self.member_rests(member)

    def describe(self, key: int, members: Members) -> None:
        if (member := self._of(key)) is not None:
            member.plane.describe(key, members)

    async def unload(self, key: int) -> None:
        member = self._of(key)
        if member is None:
            return
        try:
            await member.plane.unload(key)
        finally:
            member.models.pop(key, None)
            self.member_rests(member)

    def leftovers(self) -> Collection[int]:
        """Of the data plane that the caller was told was found; of the others it is not known yet what is needed."""
        member = self._finding.get(asyncio.current_task())
        return member.plane.leftovers() if member is not None else ()

    async def gather(self) -> None:
        """Has everything reported; what hangs is left out."""
        await asyncio.gather(self._front.gather(), *(_gathered(each) for each in self._members.values()))

    def order(self, members: Members, data: bytes = b"") -> None:
        """As `DataPlane.order`: the public one has certificates and keys, the tenants' the names of their models."""
        match members["type"]:
            case "routes":
                self._named = [orders.Named(**each) for each in members["routes"]]
                for member in self._members.values():
                    self._name(member)
                self._tell()
            case "configure":
                self._front.order(members, data)
                self._standing["configure"] = _behind(members)
                for member in self._members.values():
                    member.plane.order(self._standing["configure"])
            case _:
                self._front.order(members, data)

    async def connect(self, worker: str) -> socket.socket:
        """A connection to a tenant's data plane, which does not block, for the caller. Raises `NotReady`."""
        member = next((each for each in self._members.values() if each.id == worker), None)
        if member is None:
            raise NotReady("the data plane of this model has ended meanwhile", hint="try again later")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            await asyncio.get_running_loop().sock_connect(connection, self._places.http(member.tenant))
        except OSError as error:
            connection.close()
            raise NotReady(f"the data plane of {said(member.tenant)} cannot be reached: {error}") from error
        except BaseException:
            connection.close()
            raise
        return connection

    def resident_bytes(self) -> dict[str, int]:
        """By tenant, of the processes that are there. From any thread."""
        found = {tenant: member.resident_bytes() for tenant, member in list(self._members.items())}
        return {tenant: size for tenant, size in found.items() if size}

    # What members say.

    async def member_found(self, member: Member, found: Found) -> None:
        self._name(member)
        self._tell()
        others = [each for each in self._members.values() if each is not member]
        present = {*found.models, *(key for each in others for key in (*each.models, *each.plane.present))}
        task = asyncio.current_task()
        self._finding[task] = member
        try:
            await self.listener.found(Found(present, found.routes))
        finally:
            del self._finding[task]

    def member_rests(self, member: Member) -> None:
        if member.is_idle:
            asyncio.get_running_loop().call_later(_LINGER_S, self._end_idle, member)

    def member_lost(self, member: Member) -> None:
        self._tell()

    def member_reported(self, member: Member, report: Members) -> None:
        models = [*member.uses.values(), *self._others(member)]
        self.listener.reported({**report, "models": models, "cards": self._cards()})

    def member_traced(self, trace: Members) -> None:
        self.listener.traced(trace)

    async def member_asked(self, question: Members, data: bytes) -> Answer:
        return await self.listener.asked(question, data)

    def front_reported(self, report: Members) -> None:
        self.listener.reported({**report, "models": self._others(None), "cards": self._cards()})

    # What is said to them.

    def _member(self, tenant: str) -> Member:
        """Of a tenant that has models from now on."""
        member = self._members.get(tenant)
        if member is None:
            member = self._members[tenant] = Member(tenant, self._places.control(tenant), self)
            member.plane.order(orders.keys(True, cluster_key=self._places.key(tenant)))
            if (configure := self._standing.get("configure")) is not None:
                member.plane.order(configure)
            self._processes.want(tenant, True)
        return member

    def _end_idle(self, member: Member) -> None:
        if self._members.get(member.tenant) is not member or not member.is_idle:
            return
        del self._members[member.tenant]
        self._tell()
        self._processes.want(member.tenant, False)
        task = asyncio.get_running_loop().create_task(member.close())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _name(self, member: Member) -> None:
        member.plane.order(orders.routes([each for each in self._named if owner_of(each.model) == member.tenant]))

    def _tell(self) -> None:
        """Tells the public one who answers for which names."""
        by_tenant = defaultdict[str, list[orders.Named]](list)
        for each in self._named:
            by_tenant[owner_of(each.model)].append(each)
        workers, models = [], []
        for tenant, member in self._members.items():
            present = member.plane.present
            if member.plane.is_reached and member.generation:
                loaded = tuple((each.model, each.version) for each in by_tenant[tenant] if each.main in present)
                key = self._places.key(tenant)
                workers.append(orders.Worker(member.id, tenant, _CAPACITY, _READY, loaded, key))
            reason = f"the data plane of {said(tenant)} ended, and is starting again"
            models += [orders.Servable(each.model, each.version, (), reason) for each in by_tenant[tenant]]
        self._table.set_workers(workers)
        self._table.set_models(models)
        self._front.follow(self._table)

    def _of(self, key: int) -> Member | None:
        return next((each for each in self._members.values() if key in each.plane.present), None)

    def _others(self, member: Member | None) -> list[Members]:
        return quiet([use for each in self._members.values() if each is not member for use in each.uses.values()])

    def _cards(self) -> list[Members]:
        """Of each card what all data planes take."""
        found: dict[int, Members] = {}
        for each in (card for member in self._members.values() for card in member.cards):
            before = found.setdefault(each["card"], {**each, "used_bytes": 0})
            before["used_bytes"] += each["used_bytes"]
        return list(found.values())


class _Front(Unheard):
    """The public data plane, which has no models."""

    def __init__(self, planes: TenantPlanes) -> None:
        self._planes = planes

    def reported(self, report: Members) -> None:
        self._planes.front_reported(report)

    def connected(self, descriptor: int) -> None:
        self._planes.listener.connected(descriptor)

    def traced(self, trace: Members) -> None:
        self._planes.listener.traced(trace)

    async def asked(self, question: Members, data: bytes) -> Answer:
        return await self._planes.listener.asked(question, data)


def _behind(configure: Members) -> Members:
    """What a data plane behind the public one is told, which is its only client."""
    # It opens connections in advance, and closes those that rest for half as long.
    return {
        **configure,
        "head_timeout_s": _FIRST_REQUEST_S,
        "not_ready": "",
        "shared_memory": False,
        "peers": {**configure["peers"], "share": 1.0},
    }


async def _gathered(member: Member) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_S):
            await member.plane.gather()
