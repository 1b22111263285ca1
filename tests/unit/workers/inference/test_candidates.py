"""Tests that a model that was built for several batch sizes is loaded as one model with several artifacts."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from service.core.builds.build import Build
from service.core.builds.options import with_batch, with_tuning
from service.core.errors import CorruptBlob, NotReady
from tests.support.fake_plane import FakePlane, answerer
from tests.support.tables import Tables
from tests.support.waiting import eventually_async
from tests.unit.workers.inference.conftest import Serving, blank

pytestmark = pytest.mark.anyio


def variant(tables: Tables, batch: int, load: object = blank) -> Build:
    build = tables.built("m", 1, load)  # type: ignore[arg-type]
    tables.builds[0] = replace(build, options=with_batch(batch))
    return tables.builds[0]


def sizes(plane: FakePlane) -> list[int]:
    """Returns the batch sizes that the served model was built for."""
    route = plane.routed("m")
    return [part["batch"] for part in plane.models[route["main"]]["parts"]] if route else []


async def test_all_sizes_are_loaded_together(plane: FakePlane, serving: Serving) -> None:
    tables = Tables()
    one = tables.model("m", blank)
    seven, four = variant(tables, 7), variant(tables, 4)
    async with serving(tables) as registry:
        route = await answerer(registry, plane, "m")
        parts = plane.models[route["main"]]["parts"]
        assert [(part["batch"], part["artifact"]) for part in parts] == [
            (1, one.artifact),
            (4, four.artifact),
            (7, seven.artifact),
        ]


async def test_a_variant_is_added_to_a_model_that_is_already_served(plane: FakePlane, serving: Serving) -> None:
    tables = Tables()
    tables.model("m", blank)
    async with serving(tables) as registry:
        await registry.resolve("m")
        assert sizes(plane) == [1]
        variant(tables, 4)
        await eventually_async(lambda: sizes(plane) == [1, 4])


async def test_a_lost_variant_does_not_affect_the_model(plane: FakePlane, serving: Serving) -> None:
    tables = Tables()
    tables.model("m", blank)
    broken = variant(tables, 4, CorruptBlob("gone"))
    async with serving(tables) as registry:
        await registry.resolve("m")
        assert sizes(plane) == [1]
        assert broken not in tables.builds  # the next push builds it again


async def test_a_variant_that_the_data_plane_cannot_load_does_not_affect_the_model(
    plane: FakePlane, serving: Serving
) -> None:
    tables = Tables()
    tables.model("m", blank)
    broken = variant(tables, 4)
    assert broken.artifact
    plane.failures[broken.artifact] = NotReady("no memory")
    async with serving(tables) as registry:
        await registry.resolve("m")
        assert sizes(plane) == [1]
        await registry.refresh("m")
        assert len(plane.loads) == 1  # the artifact that failed is not tried again


@pytest.mark.parametrize(("days", "wins"), [(1, "tuned"), (-1, "plain")])
async def test_a_tuned_build_is_served_until_a_newer_one_is_made(
    plane: FakePlane, serving: Serving, days: int, wins: str
) -> None:
    """The tuned build is also served if the untuned build is requested again later."""
    tables = Tables()
    tuned = replace(tables.model("m", blank), options=with_tuning({}, 60.0))
    tables.builds[0] = replace(tuned, created_at=tuned.created_at + timedelta(days=days))
    artifacts = {"tuned": tuned.artifact, "plain": tables.built("m", 1, blank).artifact}
    async with serving(tables) as registry:
        await registry.resolve("m")
        assert plane.loads == [artifacts[wins]]
