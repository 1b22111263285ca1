"""Tests in which a data plane is replaced by another, or the control plane restarts and finds the models of the earlier
one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from service.core.builds.build import Build
from service.core.errors import DatabaseBusy, DatabaseUnreachable, NotReady
from tests.support.fake_plane import FakePlane
from tests.support.tables import Tables
from tests.support.waiting import eventually_async
from tests.unit.workers.inference.conftest import Serving, blank

pytestmark = pytest.mark.anyio
ONCE = 1e6  # the tables are read again only after this many seconds, which means never in a test


def tables_of(*models: str) -> Tables:
    tables = Tables()
    for model in models:
        tables.model(model, blank)
    return tables


async def test_another_data_plane_is_ordered_to_load_the_models_of_the_last(plane: FakePlane, serving: Serving) -> None:
    tables = tables_of("a", "b", "c")
    tables.promote("a", 1, alias="mine")
    async with serving(tables, ONCE) as registry:
        for name in (("a", None), ("a", "mine"), ("b", 1)):
            await registry.resolve(*name)
        loads = list(plane.loads)
        plane.end()
        await registry.found([], {})
        assert plane.loads == loads * 2
        assert all(plane.routed(*name) for name in (("a", None), ("a", "mine"), ("b", 1)))
        assert sorted(served.key for served in registry.in_memory()) == sorted(plane.models)


async def test_a_lost_model_that_is_held_is_not_mistaken_for_its_successor(plane: FakePlane, serving: Serving) -> None:
    async with serving(tables_of("a"), ONCE) as registry:
        await registry.resolve("a")
        (lost,) = registry.in_memory()
        with lost.hold():
            plane.end()
            await registry.found([], {})
            (loaded,) = plane.models
            lost.key = loaded  # another data plane assigns new keys, but the same order has the same key
        await eventually_async(lambda: lost not in registry.in_memory())
        assert list(plane.models) == [loaded]


async def test_models_of_the_last_control_plane_serve_at_once_and_are_not_reloaded(
    plane: FakePlane, serving: Serving
) -> None:
    tables = tables_of("a", "b")
    async with serving(tables, ONCE) as registry:
        for model in "ab":
            await registry.resolve(model)
    loads, routes = list(plane.loads), plane.left_by_another()
    async with serving(tables, ONCE) as registry:
        plane.may_load.clear()
        finding = asyncio.create_task(registry.found(list(plane.models), routes))
        await asyncio.sleep(0.05)
        assert plane.routed("a")
        assert plane.routed("b")
        plane.may_load.set()
        await finding
        assert plane.routed("a")
        assert plane.routed("b")
        assert plane.loads == loads
        assert sorted(served.key for served in registry.in_memory()) == sorted(plane.models)


async def test_names_that_are_not_yet_resolved_keep_their_routes(plane: FakePlane, serving: Serving) -> None:
    tables = tables_of("a", "b", "c")
    async with serving(tables, ONCE) as registry:
        for model in "abc":
            await registry.resolve(model)
    routes, numbers = plane.left_by_another(), list[int]()
    say = plane.order

    def listen(members: dict[str, list[object]]) -> None:
        numbers.append(len(members["routes"]))
        say(members)

    plane.order = listen  # type: ignore[method-assign]
    async with serving(tables, ONCE) as registry:
        await registry.found(list(plane.models), routes)
    assert numbers
    assert set(numbers) == {3}


async def test_models_that_are_no_longer_needed_are_unloaded(plane: FakePlane, serving: Serving) -> None:
    tables = tables_of("a", "b")
    async with serving(tables, ONCE) as registry:
        for model in "ab":
            await registry.resolve(model)
    routes = plane.left_by_another()
    (gone,) = (build for build in tables.builds if build.model == "b")
    assert gone.artifact
    tables.invalidate(gone.artifact)
    newer = tables.built("a", 1, blank)
    async with serving(tables, ONCE) as registry:
        await registry.found(list(plane.models), routes)
        assert [plane.artifact(key) for key in plane.models] == [newer.artifact]
        assert plane.routed("b") is None
        with pytest.raises(NotReady):
            await registry.resolve("b")


@pytest.mark.parametrize("error", [DatabaseBusy("locked"), DatabaseUnreachable()], ids=type)
async def test_busy_tables_do_not_interrupt_served_models(plane: FakePlane, serving: Serving, error: Exception) -> None:
    class Busy(Tables):
        is_busy = False

        def serving(self, model: str, version: int | None, targets: Sequence[str]) -> list[Build]:
            if self.is_busy:
                raise error
            return super().serving(model, version, targets)

    tables = Busy()
    tables.model("a", blank)
    async with serving(tables, ONCE) as registry:
        await registry.resolve("a")
    routes = plane.left_by_another()
    tables.is_busy = True
    async with serving(tables, 0.01) as registry:
        finding = asyncio.create_task(registry.found(list(plane.models), routes))
        await asyncio.sleep(0.1)
        assert not finding.done()
        assert plane.routed("a")
        tables.is_busy = False
        await finding
        assert plane.routed("a")
        assert len(plane.loads) == 1


async def test_without_a_data_plane_a_model_is_refused_without_recording_a_failure(
    plane: FakePlane, serving: Serving
) -> None:
    async with serving(tables_of("a"), ONCE) as registry:
        plane.is_there = False
        with pytest.raises(NotReady, match="the data plane is not running"):
            await registry.resolve("a")
        plane.is_there = True
        await registry.resolve("a")
        assert plane.routed("a")


async def test_the_memory_of_lost_models_is_released(plane: FakePlane, serving: Serving) -> None:
    tables = tables_of("a")
    async with serving(tables, ONCE) as registry:
        await registry.resolve("a")
        plane.end()
        (build,) = tables.builds
        assert build.artifact
        tables.invalidate(build.artifact)
        await registry.found([], {})
        await eventually_async(lambda: registry.in_memory() == [])
        assert registry.memory_bytes == 0
