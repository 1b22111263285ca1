"""Tests of the version that an alias refers to, and of the canary that gets a part of its requests."""

from __future__ import annotations

import asyncio

import pytest

from service.core.digest import Digest
from service.core.errors import NotFound, NotReady
from service.core.models.signature import ModelSignature
from service.workers.data_plane import orders
from service.workers.inference import Reference, Registry
from service.workers.inference.identity import Identity
from service.workers.inference.routes import Name, Route, Routes
from service.workers.inference.served import Served
from tests.support.fake_plane import FakePlane, answerer
from tests.support.tables import Tables
from tests.support.waiting import eventually_async
from tests.unit.workers.inference.conftest import Serving, blank

pytestmark = pytest.mark.anyio
ONCE = 1e6  # the tables are read again only after this many seconds, which means never in a test


@pytest.fixture
def tables() -> Tables:
    """A model with three versions."""
    tables = Tables()
    for _ in range(3):
        tables.built("m", tables.push("m"), blank)
    return tables


def version_of(plane: FakePlane, reference: Reference = None) -> int:
    route = plane.routed("m", reference)
    return int(plane.models[route["main"]]["version"]) if route else 0


async def answer(registry: Registry, plane: FakePlane, reference: Reference = None) -> int:
    await answerer(registry, plane, "m", reference)
    return version_of(plane, reference)


async def canary(registry: Registry, plane: FakePlane) -> tuple[int, int]:
    """Returns the canary version and its percentage of the requests; the version is 0 without a canary."""
    route = await answerer(registry, plane, "m")
    return int(plane.models[route["canary"]]["version"]) if route["canary"] else 0, route["percent"]


async def test_an_alias_serves_its_version(plane: FakePlane, serving: Serving, tables: Tables) -> None:
    tables.promote("m", 2)
    tables.promote("m", 1, alias="mine")
    async with serving(tables) as registry:
        assert await answer(registry, plane, "stable") == 2
        assert await answer(registry, plane, "mine") == 1
        assert await answer(registry, plane, "latest") == 3


async def test_requests_without_a_version_get_the_stable_one_once_it_is_set(
    plane: FakePlane, serving: Serving, tables: Tables
) -> None:
    async with serving(tables, ONCE) as registry:
        assert await answer(registry, plane) == 3
        tables.promote("m", 1)
        await registry.refresh("m")
        assert version_of(plane) == 1


async def test_a_version_promoted_while_the_earlier_one_loads_is_served_at_once(
    plane: FakePlane, serving: Serving, tables: Tables
) -> None:
    tables.promote("m", 1)
    async with serving(tables, ONCE) as registry:
        plane.may_load.clear()
        asking = asyncio.create_task(registry.resolve("m"))
        await eventually_async(lambda: len(tables.loads) == 1)
        tables.promote("m", 2)
        await registry.refresh("m")
        plane.may_load.set()
        await asking
        assert version_of(plane) == 2
        await eventually_async(lambda: [each["version"] for each in plane.models.values()] == ["2"])


async def test_a_new_version_does_not_change_the_stable_one(plane: FakePlane, serving: Serving, tables: Tables) -> None:
    tables.promote("m", 2)
    async with serving(tables, ONCE) as registry:
        assert await answer(registry, plane) == 2
        tables.built("m", tables.push("m"), blank)
        await registry.refresh("m")
        assert (version_of(plane), await answer(registry, plane, "latest")) == (2, 4)


async def test_a_promotion_by_another_process_is_noticed(plane: FakePlane, serving: Serving, tables: Tables) -> None:
    tables.promote("m", 1)
    async with serving(tables) as registry:
        assert await answer(registry, plane) == 1
        tables.promote("m", 2)
        await eventually_async(lambda: version_of(plane) == 2)


async def test_a_version_that_no_alias_needs_is_unloaded(plane: FakePlane, serving: Serving, tables: Tables) -> None:
    tables.promote("m", 1)
    async with serving(tables, ONCE) as registry:
        await registry.resolve("m")
        tables.promote("m", 2)
        await registry.refresh("m")
        await eventually_async(lambda: [each["version"] for each in plane.models.values()] == ["2"])


async def test_if_a_promoted_version_cannot_be_loaded_the_earlier_one_is_served(
    plane: FakePlane, serving: Serving, tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    tables.built("m", tables.push("m"), NotReady("no memory"))
    tables.promote("m", 1)
    async with serving(tables, ONCE) as registry:
        assert await answer(registry, plane) == 1
        tables.promote("m", 4)
        for _ in range(3):
            await registry.refresh("m")
            assert version_of(plane) == 1
        assert caplog.text.count("the loaded version stays in use") == 1
    plane.end()
    async with serving(tables) as registry:
        with pytest.raises(NotReady, match="no memory"):
            await registry.resolve("m")


async def test_a_canary_gets_its_share(plane: FakePlane, serving: Serving, tables: Tables) -> None:
    tables.promote("m", 1)
    tables.promote("m", 2, percent=25)
    async with serving(tables, ONCE) as registry:
        assert await canary(registry, plane) == (2, 25)
        assert version_of(plane) == 1
        tables.promote("m", 2, percent=50)
        await registry.refresh("m")
        assert await canary(registry, plane) == (2, 50)
        assert len(plane.loads) == 2


async def test_a_canary_that_cannot_be_loaded_gets_no_requests(
    plane: FakePlane, serving: Serving, tables: Tables
) -> None:
    tables.built("m", tables.push("m"), NotReady("no memory"))
    tables.promote("m", 1)
    tables.promote("m", 4, percent=90)
    async with serving(tables) as registry:
        assert await canary(registry, plane) == (0, 0)
        assert version_of(plane) == 1


async def test_a_canary_that_is_unloaded_gets_no_requests(plane: FakePlane, serving: Serving, tables: Tables) -> None:
    tables.promote("m", 1)
    tables.promote("m", 2, percent=90)
    async with serving(tables) as registry:
        assert await canary(registry, plane) == (2, 90)
        await registry.unload("m", 2)
        assert await canary(registry, plane) == (0, 0)
        assert version_of(plane) == 1


async def test_a_prepared_version_is_loaded_once_and_stays_after_a_switch_to_it(
    plane: FakePlane, serving: Serving, tables: Tables
) -> None:
    tables.promote("m", 1)
    async with serving(tables, ONCE) as registry:
        await registry.resolve("m")
        async with registry.prepared("m", 2):
            assert version_of(plane) == 1
            tables.promote("m", 2)
            await registry.refresh("m")
        assert version_of(plane) == 2
        async with registry.prepared("m", 3):
            pass
        assert [each.version for each in await registry.index() if each.state == "READY" and not each.reason] == [2]
        assert len(plane.loads) == 3


async def test_the_versions_of_a_reference(serving: Serving, tables: Tables) -> None:
    tables.promote("m", 1)
    tables.promote("m", 3, percent=10)
    async with serving(tables) as registry:
        for reference, versions in ((None, [1, 2, 3]), (2, [2]), (9, []), ("stable", [1, 3]), ("latest", [3])):
            assert await registry.versions("m", reference) == versions


async def test_unknown_aliases_are_not_found(serving: Serving, tables: Tables) -> None:
    async with serving(tables) as registry:
        with pytest.raises(NotFound, match="no alias 'mine'"):
            await registry.resolve("m", "mine")
        with pytest.raises(NotFound, match="no model 'cats'"):
            await registry.resolve("cats", "mine")


def served(key: int, version: int) -> Served:
    identity = Identity("m", version, "x86-64-v3", "xnnpack", Digest("sha256:" + "0" * 64))
    return Served(key, identity, ModelSignature((), ()))


async def test_routes_of_an_earlier_control_plane_apply_to_names_that_are_not_resolved_yet() -> None:
    changes: list[int] = []
    routes = Routes(lambda: changes.append(len(routes)))
    earlier: dict[Name, orders.Named] = {
        ("m", None): orders.Named("m", "", 7, ["1"]),
        ("n", None): orders.Named("n", "", 8, ["1"]),
    }
    routes.keep_earlier({7, 8}, earlier)
    routes["m", None] = Route(served(9, 2), versions=(1, 2))
    assert routes.named() == [orders.Named("m", "", 9, ["1", "2"]), earlier["n", None]]
    assert changes == [1]


async def test_an_earlier_route_ends_when_its_model_is_lost() -> None:
    routes = Routes(lambda: None)
    routes.keep_earlier({7}, {("m", None): orders.Named("m", "", 7, ["1"])})
    routes.keep_earlier({8}, {})
    assert routes.named() == []


async def test_the_names_of_a_model_are_those_that_it_serves_alone_or_as_a_canary() -> None:
    routes, (old, new) = Routes(lambda: None), (served(1, 1), served(2, 2))
    routes["m", None] = Route(old, new, 10)
    routes["m", 1] = Route(old)
    assert routes.names_of(old) == [("m", None), ("m", 1)]
    assert routes.names_of(new) == [("m", None)]
    assert list(routes.drop(("m", None))) == [old, new]
    assert routes.names_of(new) == []
