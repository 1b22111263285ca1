"""Tests of explicit loads and unloads of models, and of the index with the state of each model."""

from __future__ import annotations

import asyncio

import pytest

from service.core.builds.build import BuildState
from service.core.errors import NotFound, NotReady
from service.workers.inference import Indexed, ModelState, Registry
from tests.support.fake_plane import FakePlane, answerer
from tests.support.tables import Tables
from tests.support.waiting import eventually_async
from tests.unit.workers.inference.conftest import Serving, blank

pytestmark = pytest.mark.anyio


async def states(registry: Registry) -> list[tuple[str, int, str]]:
    return [(each.model, each.version, each.state) for each in await registry.index()]


@pytest.fixture
def tables() -> Tables:
    """A model with two versions."""
    tables = Tables()
    for _ in range(2):
        tables.built("m", tables.push("m"), blank)
    return tables


async def test_an_explicitly_loaded_model_is_ready_before_the_first_request(
    plane: FakePlane, serving: Serving, tables: Tables
) -> None:
    async with serving(tables) as registry:
        await registry.load("m")
        await registry.load("m", 1)
        assert plane.routed("m")
        assert len(plane.loads) == 2
        assert await states(registry) == [("m", 1, "READY"), ("m", 2, "READY")]


async def test_an_unloaded_model_is_refused_until_it_is_loaded(
    plane: FakePlane, serving: Serving, tables: Tables
) -> None:
    async with serving(tables) as registry:
        await registry.load("m")
        await registry.unload("m")
        for version in (None, 1, 2):
            assert plane.routed("m", version) is None
            with pytest.raises(NotReady, match="was unloaded") as caught:
                await registry.resolve("m", version)
        assert "/v2/repository/models/m/load" in str(caught.value.hint)
        assert {each.reason for each in await registry.index()} == {"it was unloaded"}
        await eventually_async(lambda: not plane.models)
        await registry.load("m")
        found = await registry.index()
        assert [(each.version, each.state, each.reason) for each in found] == [
            (1, ModelState.READY, "it is loaded by the first request for it"),
            (2, ModelState.READY, ""),
        ]


async def test_without_the_newest_version_the_previous_one_is_served(
    plane: FakePlane, serving: Serving, tables: Tables
) -> None:
    async with serving(tables) as registry:
        await registry.load("m")
        await registry.unload("m", 2)
        route = await answerer(registry, plane, "m")
        assert plane.models[route["main"]]["version"] == "1"
        with pytest.raises(NotReady, match="version 2 of model 'm' was unloaded"):
            await registry.resolve("m", 2)


async def test_an_unloaded_model_takes_memory_until_its_last_request_is_over(
    plane: FakePlane, serving: Serving, tables: Tables
) -> None:
    async with serving(tables) as registry:
        route = await answerer(registry, plane, "m")
        with plane.using(route["main"]):
            await registry.unload("m")
            await eventually_async(lambda: not plane.models)
            assert len(registry.in_memory()) == 1
        await eventually_async(lambda: registry.in_memory() == [])


async def test_a_model_that_is_unloaded_during_its_load_stays_unloaded(plane: FakePlane, serving: Serving) -> None:
    tables = Tables()
    tables.model("m", blank)
    async with serving(tables) as registry:
        plane.may_load.clear()
        load = asyncio.create_task(registry.load("m"))
        loading = [Indexed("m", 1, ModelState.LOADING, "it is being loaded")]
        async with asyncio.timeout(60):
            while await registry.index() != loading:
                await asyncio.sleep(0.01)
        await registry.unload("m")
        plane.may_load.set()
        with pytest.raises(NotReady, match="was unloaded"):
            await load
        assert await states(registry) == [("m", 1, "UNAVAILABLE")]
        await eventually_async(lambda: not plane.models)


async def test_load_retries_a_failed_model_at_once(plane: FakePlane, serving: Serving) -> None:
    tables = Tables()
    build = tables.model("m", blank)
    assert build.artifact
    plane.failures[build.artifact] = NotReady("no memory")
    async with serving(tables) as registry:
        for _ in range(2):
            with pytest.raises(NotReady, match="no memory"):
                await registry.resolve("m")
        assert len(tables.loads) == 1
        assert [each.reason for each in await registry.index()] == ["no memory"]
        plane.failures.clear()
        await registry.load("m")
        assert await states(registry) == [("m", 1, "READY")]


async def test_the_index_contains_why_a_model_is_not_ready(serving: Serving) -> None:
    tables = Tables()
    tables.model("lazy", blank)
    tables.build("queued", tables.push("queued"), BuildState.QUEUED)
    tables.push("unbuilt")
    async with serving(tables) as registry:
        found = await registry.index()
        assert [each.model for each in found if each.state is ModelState.READY] == ["lazy"]
        assert {each.model: each.reason for each in found} == {
            "lazy": "it is loaded by the first request for it",
            "queued": "version 1 of model 'queued' is being built (queued)",
            "unbuilt": "version 1 of model 'unbuilt' has not been built",
        }


async def test_an_unknown_model_is_neither_loaded_nor_unloaded(serving: Serving, tables: Tables) -> None:
    async with serving(tables) as registry:
        for change in (registry.load, registry.unload):
            with pytest.raises(NotFound, match="no model 'cats'"):
                await change("cats")
            with pytest.raises(NotFound, match="no version 3"):
                await change("m", 3)


async def test_a_deleted_version_is_unloaded(plane: FakePlane, serving: Serving, tables: Tables) -> None:
    async with serving(tables, 1e6) as registry:
        for version in (1, 2):
            await registry.resolve("m", version)
        (gone,) = (build for build in tables.builds if build.version == 1)
        assert gone.artifact
        tables.invalidate(gone.artifact)
        await registry.deleted("m", [1], entirely=False)
        await eventually_async(lambda: len(plane.models) == 1)
        assert plane.routed("m", 1) is None
        assert plane.routed("m", 2)
