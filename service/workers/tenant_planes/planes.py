"""The data planes of all tenants, and the public one that forwards to them, with the interface of a single data
plane.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from service.core.access.tenant import owner_of
from service.core.errors import NotReady
from service.workers.data_plane import orders
from service.workers.data_plane.messages import GpuMemory, ModelReport, Question, Report, Sample, Trace
from service.workers.data_plane.plane import Answer, DataPlane, Found, PlaneListener
from service.workers.data_plane.table import Table
from service.workers.tenant_planes.addresses import Addresses, display_name
from service.workers.tenant_planes.files import TenantFiles
from service.workers.tenant_planes.member import Member, MemberListener, quiet
from service.workers.tenant_planes.reports import Model

_logger = logging.getLogger(__name__)
# how long to wait for the counts of one tenant's data plane, so that one that hangs does not delay the others
_PATIENCE_S = 2.0
_FIRST_REQUEST_S = 60.0  # how long a new connection may take until its first request
# how long a data plane without models is kept, because a model is often loaded again soon after it was unloaded
_LINGER_S = 10.0
_CAPACITY = 1e6  # unlimited, because no other data plane could take the requests beyond the capacity
_READY = "ready"

Members = dict[str, Any]


class Processes(Protocol):
    """Starts and ends data planes. The supervisor implements this interface."""

    def want(self, tenant: str, wanted: bool) -> None:
        """Requests that the data plane of a tenant be started, or ended if `wanted` is false."""
        ...


class TenantPlanes(MemberListener):
    """Has the interface of `DataPlane`, for one event loop. Requests a process for each tenant that has models loaded.

    Attributes:
        listener: receives the reports and questions.
    """

    def __init__(
        self,
        front: DataPlane,
        addresses: Addresses,
        processes: Processes,
        files: TenantFiles,
        running: Iterable[str] = (),
    ) -> None:
        """
        Args:
            front: the public data plane.
            running: tenants whose data planes an earlier control plane started.
        """
        self._front, self._addresses, self._processes, self._files = front, addresses, processes, files
        self._front.listener = _Front(self)
        self.listener: PlaneListener = PlaneListener()
        self._initial_tenants = list(running)
        self._members: dict[str, Member] = {}
        self._standing_orders: dict[str, Members] = {}  # the orders for each data plane, by type
        self._named: list[orders.Named] = []
        self._table = Table()  # the workers in it are data planes of tenants
        self._finding: dict[object, Member] = {}  # by task: the member whose leftover models that task may unload
        self._ending: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Connects to the data planes, and reconnects whenever a connection is lost, until canceled."""
        for tenant in self._initial_tenants:
            await asyncio.to_thread(self._files.clear, tenant)
            self._member(tenant)
        self._send_table()  # queued now, so that the public data plane forwards requests from its start
        try:
            await self._front.run()
        finally:
            for member in list(self._members.values()):
                await member.close()

    async def reached(self) -> None:
        """Waits until the public data plane is connected and has received the standing orders."""
        await self._front.reached()

    async def load(self, order: Mapping[str, Any]) -> int:
        """Loads a model as `DataPlane.load` does, in the data plane of the model's tenant."""
        member = self._member(owner_of(order["model"]))
        member.begin()
        try:
            with self._files.link_files(member.tenant, order) as order_with_links:
                key = await member.plane.load(order_with_links)
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
        """Returns the leftover models of one data plane: the one whose `found` event the current task handles. In other
        tasks, returns nothing, because it is not known yet which models the other data planes need.
        """
        member = self._finding.get(asyncio.current_task())
        return member.plane.leftovers() if member is not None else ()

    async def gather(self) -> None:
        """Makes all data planes report their counts. Does not wait for a data plane that hangs."""
        await asyncio.gather(self._front.gather(), *(_gather_with_timeout(each) for each in self._members.values()))

    def order(self, members: Members, data: bytes = b"") -> None:
        """Sends an order as `DataPlane.order` does. Certificates and keys go to the public data plane, and routes to
        the data planes of the tenants that own the models.
        """
        match members["type"]:
            case "routes":
                self._named = [orders.Named(**each) for each in members["routes"]]
                for member in self._members.values():
                    self._name(member)
                self._send_table()
            case "configure":
                self._front.order(members, data)
                self._standing_orders["configure"] = _behind_front(members)
                for member in self._members.values():
                    member.plane.order(self._standing_orders["configure"])
            case "samples":
                self._standing_orders["samples"] = members
                for member in self._members.values():
                    member.plane.order(members)
            case _:
                self._front.order(members, data)

    async def connect(self, worker: str) -> socket.socket:
        """Opens a non-blocking connection to a tenant's data plane; the caller owns it. Raises `NotReady`."""
        member = next((each for each in self._members.values() if each.id == worker), None)
        if member is None:
            raise NotReady("the data plane of this model has ended", hint="try again later")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            await asyncio.get_running_loop().sock_connect(connection, self._addresses.http(member.tenant))
        except OSError as error:
            connection.close()
            raise NotReady(f"the data plane of {display_name(member.tenant)} cannot be reached: {error}") from error
        except BaseException:
            connection.close()
            raise
        return connection

    def resident_bytes(self) -> dict[str, int]:
        """Returns the memory of each running data plane, by tenant. May be called from any thread."""
        found = {tenant: member.resident_bytes() for tenant, member in list(self._members.items())}
        return {tenant: size for tenant, size in found.items() if size}

    # The following methods handle the events of members.

    async def member_found(self, member: Member, found: Found) -> None:
        self._name(member)
        self._send_table()
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
        self._send_table()

    def member_reported(self, member: Member, report: Report) -> None:
        models = [*member.uses.values(), *self._others(member)]
        self.listener.reported({**report, "models": models, "cards": self._cards()})

    def member_traced(self, trace: Trace) -> None:
        self.listener.traced(trace)

    def member_sampled(self, sample: Sample, data: bytes) -> None:
        self.listener.sampled(sample, data)

    async def answer_member(self, question: Question, data: bytes) -> Answer:
        return await self.listener.answer(question, data)

    def front_reported(self, report: Report) -> None:
        self.listener.reported({**report, "models": self._others(None), "cards": self._cards()})

    # The following methods send orders to members.

    def _member(self, tenant: str) -> Member:
        """Returns the data plane of a tenant. If there is none yet, requests its process."""
        member = self._members.get(tenant)
        if member is None:
            member = self._members[tenant] = Member(tenant, self._addresses.control(tenant), self)
            member.plane.order(orders.keys(True, cluster_key=self._addresses.key(tenant)))
            for order in self._standing_orders.values():
                member.plane.order(order)
            self._processes.want(tenant, True)
        return member

    def _end_idle(self, member: Member) -> None:
        if self._members.get(member.tenant) is not member or not member.is_idle:
            return
        del self._members[member.tenant]
        self._send_table()
        self._processes.want(member.tenant, False)
        task = asyncio.get_running_loop().create_task(member.close())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _name(self, member: Member) -> None:
        member.plane.order(orders.routes([each for each in self._named if owner_of(each.model) == member.tenant]))

    def _send_table(self) -> None:
        """Sends the public data plane the table of names, with the data plane that serves each."""
        by_tenant = defaultdict[str, list[orders.Named]](list)
        for each in self._named:
            by_tenant[owner_of(each.model)].append(each)
        workers, models = [], []
        for tenant, member in self._members.items():
            present = member.plane.present
            if member.plane.is_reached and member.generation:
                loaded = tuple((each.model, each.version) for each in by_tenant[tenant] if each.main in present)
                key = self._addresses.key(tenant)
                workers.append(orders.Worker(member.id, tenant, _CAPACITY, _READY, loaded, key))
            reason = f"the data plane of {display_name(tenant)} ended, and is starting again"
            models += [orders.Servable(each.model, each.version, (), reason) for each in by_tenant[tenant]]
        self._table.set_workers(workers)
        self._table.set_models(models)
        self._front.follow(self._table)

    def _of(self, key: int) -> Member | None:
        return next((each for each in self._members.values() if key in each.plane.present), None)

    def _others(self, member: Member | None) -> list[ModelReport]:
        return quiet([use for each in self._members.values() if each is not member for use in each.uses.values()])

    def _cards(self) -> list[GpuMemory]:
        """Returns the memory that all data planes together use, for each GPU."""
        found: dict[int, GpuMemory] = {}
        for each in (gpu for member in self._members.values() for gpu in member.cards):
            before = found.setdefault(each["card"], {**each, "used_bytes": 0})
            before["used_bytes"] += each["used_bytes"]
        return list(found.values())


class _Front(PlaneListener):
    """Passes on the events of the public data plane, in which no models are loaded."""

    def __init__(self, planes: TenantPlanes) -> None:
        self._planes = planes

    def reported(self, report: Report) -> None:
        self._planes.front_reported(report)

    def connected(self, descriptor: int) -> None:
        self._planes.listener.connected(descriptor)

    def traced(self, trace: Trace) -> None:
        self._planes.listener.traced(trace)

    async def answer(self, question: Question, data: bytes) -> Answer:
        return await self._planes.listener.answer(question, data)


def _behind_front(configure: Members) -> Members:
    """Returns the `configure` order for a tenant's data plane, whose only client is the public one."""
    # The public data plane opens connections in advance, and closes those that have been idle for half of this time.
    return {
        **configure,
        "head_timeout_s": _FIRST_REQUEST_S,
        "not_ready": "",
        "shared_memory": False,
        "peers": {**configure["peers"], "share": 1.0},
    }


async def _gather_with_timeout(member: Member) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_S):
            await member.plane.gather()
