from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from service.core.cluster.worker import Worker, WorkerKind, WorkerState
from service.core.errors import DatabaseUnreachable, NotFound, NotReady, UnknownTarget
from service.db.engines.notifications import PollingNotifications
from service.workers.data_plane import orders
from service.workers.data_plane.table import Table
from service.workers.inference.ports import Changes
from service.workers.inference.routes import Reference
from service.workers.routing import Members, Routing, Servable
from service.workers.routing.security import Security
from tests.support.certificates import Authority
from tests.support.changes import ManualChanges
from tests.support.waiting import GIVE_UP_S
from tests.support.worker_table import WorkerTable

pytestmark = pytest.mark.anyio
START = datetime(2026, 1, 1, tzinfo=UTC)
W1 = Worker(
    "w1", WorkerKind.INFERENCE, "h", 1, "x86-64-v3", START, START, pool="old", address="127.0.0.1:1", capacity=2
)
KEYS = {"key": "", "server_name": ""}
W2 = replace(W1, id="w2", pool="new", target="x86-64-v4+vnni", loaded=(("digits", ""),), capacity=4)


class Cluster:
    """The running workers, and the orders that the data plane received about them."""

    def __init__(self, changes: Changes | None = None) -> None:
        self.workers: dict[str, Worker] = {}
        self.asked = 0
        self.built: dict[tuple[str, Reference], set[str]] = {}
        self.is_there = True
        self.may_answer = threading.Event()  # while this event is cleared, calls that look up a model do not return
        self.may_answer.set()
        self.security = Security("secret")
        self.authorities: bytes | None = None
        self.orders: list[dict[str, Any]] = []
        self.told = WorkerTable()
        self.routing = Routing(
            cast(Members, self),
            cast(Servable, self),
            self,
            PollingNotifications(),
            lambda: self.security,
            0.1,
            changes,
        )

    def look(self) -> Mapping[str, Worker]:
        self.check()
        return dict(self.workers)

    def pools(self, model: str, reference: Reference, targets: Mapping[str, Collection[str]]) -> list[str]:
        self.check()
        self.asked += 1
        if (model, reference) not in self.built:
            raise NotFound(f"no {model}")
        found = [pool for pool, names in targets.items() if not self.built[model, reference].isdisjoint(names)]
        if not found:
            raise NotReady("no running worker supports x")
        assert self.may_answer.wait(GIVE_UP_S)
        return sorted(found)

    def check(self) -> None:
        if not self.is_there:
            raise DatabaseUnreachable

    def order(self, members: dict[str, Any], data: bytes = b"") -> None:
        assert members == {"type": "authority"}
        self.authorities = data

    def follow(self, table: Table) -> None:
        self.orders.append(table.changes() if self.orders else table.whole())
        self.told.apply(self.orders[-1])

    @property
    def models(self) -> list[tuple[str, str, list[str]]]:
        return [(*name, list(each["pools"])) for name, each in self.told.models.items()]

    async def sees(self, *workers: Worker) -> None:
        """Waits until the routing has sent exactly these workers to the data plane."""
        self.workers = {each.id: each for each in workers}
        await self.until(lambda: self.told.workers.keys() == self.workers.keys())

    async def sees_but(self, refused: str, *others: Worker) -> None:
        """Waits until the routing has sent exactly these workers to the data plane, apart from the refused worker."""
        self.workers |= {each.id: each for each in others}
        await self.until(lambda: self.told.workers.keys() == self.workers.keys() - {refused})

    async def until_quiet(self, changes: ManualChanges) -> None:
        """Waits until no name is being resolved any more, while changes are still requested."""
        count = -1
        while count != self.asked:
            count, looks = self.asked, changes.asked
            await self.until(lambda looks=looks: changes.asked > looks + 2)  # type: ignore[misc]

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(GIVE_UP_S):
            while not is_so():
                await asyncio.sleep(0.01)


@asynccontextmanager
async def following(changes: Changes | None = None) -> AsyncIterator[Cluster]:
    cluster = Cluster(changes)
    task = asyncio.create_task(cluster.routing.run())
    await cluster.until(lambda: bool(cluster.orders))
    try:
        yield cluster
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


async def test_the_data_plane_is_a_router_from_the_start() -> None:
    async with following() as cluster:
        assert cluster.orders[0] == orders.workers("secret", (), ())


async def test_the_data_plane_gets_the_running_workers_and_their_loaded_models() -> None:
    async with following() as cluster:
        await cluster.sees(W1, W2)
        received = cluster.told.workers
        assert received["w1"] == {"id": "w1", "pool": "old", "capacity": 2, "state": "ready", "loaded": ()} | KEYS
        assert (received["w2"]["capacity"], received["w2"]["loaded"]) == (4, (("digits", ""),))
        await cluster.sees(W2)
        assert list(cluster.told.workers) == ["w2"]


async def test_the_data_plane_gets_only_changes() -> None:
    async with following() as cluster:
        await cluster.sees(W1, W2)
        cluster.built["digits", 2] = {"x86-64-v3"}
        await cluster.routing.resolve("digits", 2)
        count = len(cluster.orders)
        cluster.workers["w2"] = replace(W2, loaded=(*W2.loaded, ("cats", "")))
        await cluster.until(lambda: len(cluster.told.workers["w2"]["loaded"]) == 2)
        del cluster.workers["w1"]
        await cluster.until(lambda: not cluster.models)  # no running worker can serve the model
        changes = [each for each in cluster.orders[count:] if each["workers"] or each["gone"]]
        assert [each["resets"] for each in changes] == [False, False]
        assert [[row["id"] for row in each["workers"]] for each in changes] == [["w2"], []]
        assert [each["gone"] for each in changes] == [[], ["w1"]]


async def test_a_name_is_sent_before_resolve_returns_and_kept_up_to_date() -> None:
    async with following() as cluster:
        await cluster.sees(W1, W2)
        cluster.built["digits", 2] = {"x86-64-v3"}
        await cluster.routing.resolve("digits", 2)
        assert cluster.models == [("digits", "2", ["old"])]
        cluster.built["digits", 2] = {"x86-64-v3", "x86-64-v4+vnni"}
        await cluster.until(lambda: cluster.models == [("digits", "2", ["new", "old"])])
        del cluster.built["digits", 2]
        await cluster.until(lambda: cluster.models == [])
        with pytest.raises(NotFound):
            await cluster.routing.resolve("digits", 2)


async def test_a_name_is_resolved_again_if_its_model_or_the_pools_have_changed() -> None:
    changes = ManualChanges()
    async with following(changes) as cluster:
        await cluster.sees(W1)
        cluster.built["digits", 2] = {"x86-64-v3", "x86-64-v4+vnni"}
        await cluster.routing.resolve("digits", 2)
        await cluster.until_quiet(changes)
        await cluster.sees(W1, W2)
        await cluster.until(lambda: cluster.models == [("digits", "2", ["new", "old"])])
        await cluster.until_quiet(changes)
        cluster.built["digits", 2] = {"x86-64-v3"}
        changes.note("digits")
        await cluster.until(lambda: cluster.models == [("digits", "2", ["old"])])


async def test_a_change_while_a_name_is_being_resolved_is_not_missed() -> None:
    changes = ManualChanges()
    async with following(changes) as cluster:
        await cluster.sees(W1, W2)
        cluster.built["digits", 2] = {"x86-64-v3"}
        await cluster.until_quiet(changes)
        cluster.may_answer.clear()
        asking = asyncio.create_task(cluster.routing.resolve("digits", 2))
        await cluster.until(lambda: cluster.asked == 1)
        cluster.built["digits", 2] = {"x86-64-v4+vnni"}
        changes.note("digits")
        await cluster.until_quiet(changes)
        cluster.may_answer.set()
        await asking
        await cluster.until(lambda: cluster.models == [("digits", "2", ["new"])])


async def test_a_worker_in_plain_text_gets_no_requests_if_tls_is_required(tmp_path: Path) -> None:
    async with following() as cluster:
        cluster.security = Security("secret", Authority(tmp_path).file)
        cluster.workers = {"w1": W1}
        cluster.built["digits", None] = {"x86-64-v3"}
        await cluster.sees_but("w1", replace(W2, address="https://10.0.0.2:8080"))
        assert cluster.told.workers["w2"]["server_name"] == "10.0.0.2"
        assert cluster.security.ca is not None
        assert cluster.authorities == cluster.security.ca.read_bytes()
        assert "cluster_ca requires TLS" in str(cluster.routing.refusal("w1"))
        with pytest.raises(NotReady, match=r"worker w1 gets no requests: it accepts requests in plain text"):
            await cluster.routing.resolve("digits")
        assert [target.name for target in cluster.routing.targets()] == ["x86-64-v4+vnni"]


async def test_a_worker_with_tls_gets_no_requests_if_no_authority_is_configured() -> None:
    async with following() as cluster:
        await cluster.sees_but("w1", W2)
        cluster.workers["w1"] = replace(W1, address="https://10.0.0.2:8080")
        await cluster.until(lambda: "no cluster_ca" in str(cluster.routing.refusal("w1")))
        assert "w1" not in cluster.told.workers


async def test_certificates_are_for_one_name_if_the_settings_have_one(tmp_path: Path) -> None:
    async with following() as cluster:
        cluster.security = Security("secret", Authority(tmp_path).file, "workers.example")
        await cluster.sees(replace(W2, address="https://10.0.0.2:8080"))
        assert cluster.told.workers["w2"]["server_name"] == "workers.example"


async def test_a_rejected_certificate_is_reported_until_it_is_accepted() -> None:
    async with following() as cluster:
        await cluster.sees(W1)
        cluster.routing.distrusted("w1", "certificate has expired")
        assert cluster.routing.refusal("w1") == "its certificate was rejected: certificate has expired"
        cluster.routing.distrusted("w1", "")
        assert cluster.routing.refusal("w1") is None


async def test_draining_workers_serve_no_new_names() -> None:
    async with following() as cluster:
        await cluster.sees(replace(W1, state=WorkerState.DRAINING))
        cluster.built["digits", None] = {"x86-64-v3"}
        with pytest.raises(NotReady):
            await cluster.routing.resolve("digits")


async def test_during_an_outage_of_the_database_the_last_state_stays() -> None:
    async with following() as cluster:
        await cluster.sees(W1)
        cluster.built["digits", None] = {"x86-64-v3"}
        await cluster.routing.resolve("digits")
        cluster.is_there = False
        before = deepcopy(cluster.told)
        await asyncio.sleep(0.3)
        assert cluster.told == before
        cluster.is_there = True
        await cluster.sees(W1, W2)
        assert cluster.models == [("digits", "", ["old"])]


async def test_a_connection_goes_to_the_given_worker(listener: socket.socket) -> None:
    host, port = listener.getsockname()
    async with following() as cluster:
        await cluster.sees(W1, replace(W2, address=f"{host}:{port}"))
        with await cluster.routing.connect("w2") as connection:
            assert connection.getpeername() == (host, port)
            assert not connection.getblocking()


async def test_the_error_names_a_worker_that_cannot_be_reached(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    listener.close()
    async with following() as cluster:
        await cluster.sees(replace(W1, address=f"127.0.0.1:{port}"))
        with pytest.raises(NotReady, match=rf"worker w1 cannot be reached at 127.0.0.1:{port}: .*111"):
            await cluster.routing.connect("w1")
        with pytest.raises(NotReady, match="worker w9 is gone"):
            await cluster.routing.connect("w9")


async def test_models_are_built_for_the_best_running_target_by_default() -> None:
    async with following() as cluster:
        with pytest.raises(UnknownTarget, match="no running worker has a target"):
            cluster.routing.best_target()
        await cluster.sees(W1)
        assert cluster.routing.best_target().name == "x86-64-v3"
        await cluster.sees(W1, W2)
        assert cluster.routing.best_target().name == "x86-64-v4+vnni"
