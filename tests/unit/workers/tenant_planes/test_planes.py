"""Tests of the data planes of two tenants and the public one: which orders each receives, and what one tenant can
affect.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from service.core.errors import Restarting
from service.core.settings import Settings
from service.workers.data_plane import orders
from service.workers.data_plane.messages import ModelReport, Question, Report, Sample
from service.workers.data_plane.orders import Named
from service.workers.data_plane.plane import Answer, DataPlane, Found, PlaneListener
from service.workers.tenant_planes import Addresses, TenantFiles, TenantPlanes, planes
from tests.support.plane_end import PlaneEnd
from tests.support.waiting import eventually_async
from tests.support.worker_table import WorkerTable

pytestmark = pytest.mark.anyio
NOTHING: Mapping[str, Any] = {"answers": []}

Members = dict[str, Any]


@dataclass(frozen=True)
class FewAddresses(Addresses):
    """The addresses at which a test listens."""

    ends: Mapping[str, PlaneEnd] = field(default_factory=lambda: {"acme": PlaneEnd(), "beta": PlaneEnd()})

    def end(self, tenant: str) -> PlaneEnd:
        return self.ends[tenant]

    def control(self, tenant: str) -> bytes:
        return self.end(tenant).address


class Supervisor:
    """Records requests to start and end the data planes of tenants.

    Attributes:
        asked: pairs of a tenant, and whether its data plane is wanted.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, object]] = []

    def want(self, tenant: str, wanted: bool) -> None:
        self.asked.append((tenant, wanted))


class Listener(PlaneListener):
    def __init__(self) -> None:
        self.finds: list[Found] = []
        self.reports: list[Report] = []
        self.questions: list[Question] = []
        self.samples: list[tuple[Sample, bytes]] = []

    async def found(self, found: Found) -> None:
        self.finds.append(found)

    def reported(self, report: Report) -> None:
        self.reports.append(report)

    def sampled(self, sample: Sample, data: bytes) -> None:
        self.samples.append((sample, data))

    async def answer(self, question: Question, data: bytes) -> Answer:
        self.questions.append(question)
        return Answer({})


class Scene:
    """The data planes of tenants, with fakes of all other components.

    Attributes:
        front: the fake of the public data plane.
    """

    def __init__(self, folder: Path) -> None:
        self.front, self.addresses, self.supervisor, self.listener = (
            PlaneEnd(),
            FewAddresses(),
            Supervisor(),
            Listener(),
        )
        self.library = folder / ("0" * 64)
        self.library.write_bytes(b"code")
        files = TenantFiles(lambda tenant: folder / tenant)
        self.planes = TenantPlanes(DataPlane(self.front.address), self.addresses, self.supervisor, files)
        self.planes.listener = self.listener
        self.shown = WorkerTable()

    def order(self, model: str) -> Members:
        part = {"batch": 1, "artifact": "a", "config": "{}", "library": str(self.library), "constants": ""}
        return {"type": "load", "model": model, "version": "1", "target": "t", "parts": [part]}

    async def loaded(self, model: str) -> int:
        """Loads the model in a data plane that starts during the load."""
        end = self.addresses.end(model.partition("~")[0])
        loading = asyncio.create_task(self.planes.load(self.order(model)))
        await end.accept()
        order = await self.next_order(end, "load")
        assert Path(order["parts"][0]["library"]).read_bytes() == b"code"
        end.send({"type": "loaded", "key": order["key"]})
        return await loading

    async def next_order(self, end: PlaneEnd, kind: str) -> Members:
        while (members := (await end.read_frame())[0])["type"] != kind:
            pass
        return members

    def route(self, **keys: int) -> None:
        named = [Named(f"{tenant}~digits", "", key, ["1"]) for tenant, key in keys.items()]
        self.planes.order(orders.routes(named))

    async def table_with(self, *answering: str) -> WorkerTable:
        """Returns the table in the public data plane when exactly these tenants' data planes are connected."""
        while True:
            self.shown.apply(await self.next_order(self.front, "workers"))
            if {each["pool"] for each in self.shown.workers.values() if each["loaded"]} == set(answering):
                return self.shown


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path)
    running = asyncio.create_task(scene.planes.run())
    await scene.front.accept()
    yield scene
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    for end in (scene.front, scene.addresses.end("acme"), scene.addresses.end("beta")):
        end.close()


async def both(scene: Scene) -> tuple[int, int]:
    keys = await scene.loaded("acme~digits"), await scene.loaded("beta~digits")
    scene.route(acme=keys[0], beta=keys[1])
    await scene.table_with("acme", "beta")
    return keys


async def test_the_models_of_each_tenant_are_loaded_in_a_separate_process(scene: Scene) -> None:
    acme, beta = await both(scene)
    assert scene.supervisor.asked == [("acme", True), ("beta", True)]
    shown = {each["pool"]: each["key"] for each in scene.shown.workers.values()}
    assert shown == {tenant: scene.addresses.key(tenant) for tenant in ("acme", "beta")}
    assert len(set(shown.values())) == 2
    for tenant, key in (("acme", acme), ("beta", beta)):
        routes = await scene.next_order(scene.addresses.end(tenant), "routes")
        while not routes["routes"]:
            routes = await scene.next_order(scene.addresses.end(tenant), "routes")
        assert [(each["model"], each["main"]) for each in routes["routes"]] == [(f"{tenant}~digits", key)]


async def test_samples_are_received_only_of_models_in_the_same_process(scene: Scene) -> None:
    acme, beta = await both(scene)
    scene.planes.order(orders.samples({acme: 0.5, beta: 0.5}))
    for tenant in ("acme", "beta"):
        order = await scene.next_order(scene.addresses.end(tenant), "samples")
        assert order["models"] == [{"key": key, "share": 0.5} for key in sorted((acme, beta))]
    for key in (beta, "acme", None, acme):
        scene.addresses.end("acme").send({"type": "sample", "key": key, "dropped": 0}, b"x")
    scene.addresses.end("beta").send({"type": "sample", "key": beta, "dropped": 2}, b"y")
    await eventually_async(lambda: len(scene.listener.samples) == 2)
    found = sorted((sample["key"], sample["dropped"], data) for sample, data in scene.listener.samples)
    assert found == sorted([(acme, 0, b"x"), (beta, 2, b"y")])


async def test_a_process_that_starts_later_gets_the_samples_order_too(scene: Scene) -> None:
    scene.planes.order(orders.samples({1: 0.5}))
    end = scene.addresses.end("acme")
    loading = asyncio.create_task(scene.planes.load(scene.order("acme~digits")))
    await end.accept()
    assert (await scene.next_order(end, "samples"))["models"] == [{"key": 1, "share": 0.5}]
    end.send({"type": "loaded", "key": (await scene.next_order(end, "load"))["key"]})
    await loading


async def test_the_links_to_files_are_removed_after_the_load(scene: Scene, tmp_path: Path) -> None:
    await scene.loaded("acme~digits")
    assert list((tmp_path / "acme").iterdir()) == []
    assert scene.library.exists()


async def test_a_data_plane_that_ends_does_not_affect_the_others(scene: Scene) -> None:
    acme, beta = await both(scene)
    scene.addresses.end("acme").leave()
    table = await scene.table_with("beta")
    reasons = {each["model"]: each["reason"] for each in table.models.values()}
    assert reasons["acme~digits"] == "the data plane of tenant acme ended, and is starting again"
    scene.listener.finds.clear()
    await scene.addresses.end("acme").accept()
    await eventually_async(lambda: bool(scene.listener.finds))
    (found,) = scene.listener.finds
    assert beta in found.models  # otherwise the data plane would be considered lost
    assert acme not in found.models


async def test_a_load_fails_if_the_data_plane_ends(scene: Scene) -> None:
    end = scene.addresses.end("acme")
    loading = asyncio.create_task(scene.planes.load(scene.order("acme~digits")))
    await end.accept()
    await scene.next_order(end, "load")
    end.leave()
    with pytest.raises(Restarting, match="data plane of tenant acme"):
        await loading


async def test_a_data_plane_without_models_is_ended(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planes, "_LINGER_S", 0.01)
    key = await scene.loaded("acme~digits")
    assert scene.supervisor.asked == [("acme", True)]
    unloading = asyncio.create_task(scene.planes.unload(key))
    await scene.next_order(scene.addresses.end("acme"), "unload")
    scene.addresses.end("acme").send({"type": "unloaded", "key": key})
    await unloading
    await eventually_async(lambda: scene.supervisor.asked[-1] == ("acme", False))


async def test_a_gather_does_not_wait_for_a_data_plane_that_hangs(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planes, "_PATIENCE_S", 0.01)
    await scene.loaded("acme~digits")
    gathering = asyncio.create_task(scene.planes.gather())
    gather = (await scene.next_order(scene.front, "gather"))["gather"]
    scene.front.send({"type": "report", "gather": gather, "models": [], "rejected": {}, "not_allowed": {}, "used": {}})
    await gathering


async def test_reports_of_a_tenant_count_only_for_its_own_models(scene: Scene) -> None:
    acme, beta = await both(scene)
    use = {"admitted": 1, "queued": 0, "used_s": 2.0, "changes": dict(NOTHING)}
    models = [
        {"key": acme, "model": "beta~digits", "version": "9", "target": "?", **use},
        {"key": beta, "model": "beta~digits", "version": "1", "target": "t", **use},
    ]
    report = {"type": "report", "gather": 0, "models": models, "rejected": {"queue_full": 2, "made up": 1}}
    scene.listener.reports.clear()
    scene.addresses.end("acme").send({**report, "not_allowed": {"x": 1}, "forwards": [1], "used": {"a key": 100}})
    await eventually_async(lambda: bool(scene.listener.reports))
    (heard,) = scene.listener.reports
    assert [(each["key"], each["model"], each["version"], each["target"]) for each in heard["models"]] == [
        (acme, "acme~digits", "1", "t")
    ]
    assert (heard["rejected"], heard["not_allowed"], heard["forwards"], heard["used"]) == (
        {"queue_full": 2},
        {},
        [],
        {},
    )


async def test_a_report_of_one_contains_the_last_reports_of_the_others(scene: Scene) -> None:
    keys = await both(scene)
    for tenant, key in zip(("acme", "beta"), keys, strict=True):
        use = {"key": key, "admitted": 1, "queued": 0, "used_s": 2.0, "changes": dict(NOTHING)}
        scene.addresses.end(tenant).send({"type": "report", "gather": 0, "models": [use], "rejected": {}})
    await eventually_async(lambda: bool(scene.listener.reports) and len(scene.listener.reports[-1]["models"]) == 2)
    assert sorted(map(_key, scene.listener.reports[-1]["models"])) == sorted(keys)


def _key(model: ModelReport) -> int:
    return int(model["key"])


@pytest.mark.parametrize(
    "question",
    [
        {"kind": "resolve", "model": "beta~digits", "version": ""},
        {"kind": "resolve", "model": "digits", "version": ""},
        {"kind": "picture"},
        {"kind": "call", "path": "/x", "request_id": "1", "caller": "another"},
        {"kind": "connect", "worker": "beta/1"},
    ],
)
async def test_questions_about_other_tenants_models_get_not_found(scene: Scene, question: Members) -> None:
    await both(scene)
    end = scene.addresses.end("acme")
    end.send({"type": "question", "question": 1, **question})
    assert (await scene.next_order(end, "answer"))["problem"]["http"] == 404
    assert scene.listener.questions == []


async def test_questions_of_a_tenant_about_its_models_are_answered(scene: Scene) -> None:
    await both(scene)
    end = scene.addresses.end("acme")
    end.send({"type": "question", "question": 0, "kind": "resolve", "model": "acme~x", "version": ""})
    assert "problem" not in await scene.next_order(end, "answer")
    assert len(scene.listener.questions) == 1


async def test_only_the_public_data_plane_gets_keys_and_certificates(scene: Scene) -> None:
    await scene.loaded("acme~digits")
    scene.planes.order(orders.configure(Settings(), "not yet"))
    scene.planes.order(orders.keys(True, cluster_key="c"))
    scene.planes.order(*orders.certificate(b"chain", b"key"))
    end = scene.addresses.end("acme")
    # the tenants' data planes accept all requests, because the public data plane checks them
    assert (await scene.next_order(end, "configure"))["not_ready"] == ""
    assert (await scene.next_order(scene.front, "configure"))["not_ready"] == "not yet"
    await scene.next_order(scene.front, "keys")
    while (await scene.front.read_frame())[0]["type"] != "certificate":
        pass
    end.send({"type": "question", "question": 1, "kind": "call"})
    assert (await end.read_frame())[0]["type"] == "answer"  # no other frame was sent before the answer


async def test_an_order_has_the_same_key_for_the_next_control_plane(scene: Scene, tmp_path: Path) -> None:
    """The next control plane identifies the loaded models by this key."""
    files = TenantFiles(lambda tenant: tmp_path / tenant)
    with files.link_files("acme", scene.order("acme~digits")) as one:
        pass
    with files.link_files("acme", scene.order("acme~digits")) as other:
        pass
    assert one == other
