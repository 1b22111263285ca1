"""Tests that no table is read without changes, and that a name is resolved again if its model has changed or an attempt
has failed.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from service.core.errors import NotReady
from tests.support.changes import ManualChanges
from tests.support.fake_plane import FakePlane
from tests.support.tables import Tables
from tests.support.waiting import eventually_async
from tests.unit.workers.inference.conftest import Serving, blank

pytestmark = pytest.mark.anyio


async def asked_again(changes: ManualChanges) -> None:
    count = changes.asked
    await eventually_async(lambda: changes.asked > count + 2)


async def test_without_changes_no_table_is_read(plane: FakePlane, serving: Serving) -> None:
    tables, changes = Tables(), ManualChanges()
    for model in ("m", "n"):
        tables.model(model, blank)
    async with serving(tables, changes=changes) as registry:
        for model in ("m", "n"):
            await registry.resolve(model)
        await asked_again(changes)
        queries = tables.queries
        await asked_again(changes)
        assert tables.queries == queries


async def test_a_changed_model_is_resolved_again(plane: FakePlane, serving: Serving) -> None:
    tables, changes = Tables(), ManualChanges()
    tables.model("m", blank)
    async with serving(tables, changes=changes) as registry:
        await registry.resolve("m")
        await asked_again(changes)
        newer = tables.built("m", 1, blank)
        await asked_again(changes)
        assert newer.artifact not in tables.loads
        changes.note("m")
        await eventually_async(lambda: newer.artifact in tables.loads)


async def test_a_failed_load_is_retried_without_a_change(plane: FakePlane, serving: Serving) -> None:
    tables, changes = Tables(), ManualChanges()
    tables.model("m", blank)
    async with serving(tables, changes=changes) as registry:
        await registry.resolve("m")
        await asked_again(changes)
        broken = tables.built("m", 1, NotReady("not verified"))
        changes.note("m")
        await eventually_async(lambda: broken.artifact in tables.loads)
        await asked_again(changes)
        tables.builds[0] = replace(broken, invalidated=True)
        queries = tables.queries
        await asked_again(changes)
        assert tables.queries > queries


async def test_forgiving_an_artifact_resolves_every_name_again(plane: FakePlane, serving: Serving) -> None:
    tables, changes = Tables(), ManualChanges()
    build = tables.model("m", blank)
    async with serving(tables, changes=changes) as registry:
        await registry.resolve("m")
        await asked_again(changes)
        assert build.artifact is not None
        await registry.forgive(build.artifact)
        queries = tables.queries
        await asked_again(changes)
        assert tables.queries > queries
        await asyncio.sleep(0)


async def test_a_version_promoted_while_another_loads_is_served_soon(plane: FakePlane, serving: Serving) -> None:
    """The version is promoted while the name is not served, or while the name is being resolved again."""
    tables, changes = Tables(), ManualChanges()
    tables.model("other", blank)
    tables.model("m", blank)
    newer = tables.built("m", tables.push("m"), blank)
    tables.promote("m", 1)
    async with serving(tables, changes=changes) as registry:
        await registry.resolve("other")
        plane.may_load.clear()
        asking = asyncio.create_task(registry.resolve("m"))
        await eventually_async(lambda: len(tables.loads) == 2)
        tables.promote("m", 2)
        changes.note("m")
        await asked_again(changes)
        plane.may_load.set()
        await asking
        await eventually_async(lambda: plane.artifact(plane.routed("m")["main"]) == newer.artifact)  # type: ignore[index]
