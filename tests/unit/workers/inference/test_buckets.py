"""Tests that a model that was built for several shapes is loaded as one model with one artifact per shape."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from service.core.builds.build import Build
from service.core.builds.options import with_sizes
from service.core.errors import CorruptBlob
from service.core.models.signature import ModelSignature, TensorSpec
from tests.support.fake_plane import Blank, FakePlane
from tests.support.tables import Tables
from tests.unit.workers.inference.conftest import Serving

pytestmark = pytest.mark.anyio
SIZES = (4, 8, 16)
ONCE = 1e6  # the tables are read again only after this many seconds, which means never in a test


def model(length: int) -> Blank:
    inputs = (TensorSpec("ids", "INT64", (1, length)),)
    return Blank(ModelSignature(inputs, (TensorSpec("y", "INT64", (1, length)),), pads=True))


def bucket(tables: Tables, length: int, sizes: tuple[int, ...] = SIZES, lost: bool = False) -> Build:
    build = tables.built("m", 1, CorruptBlob("damaged") if lost else partial(model, length))
    options = with_sizes([1], {"ids": [1, list(sizes)]})[sizes.index(length)]
    tables.builds[0] = replace(build, options=options)
    return tables.builds[0]


def loaded(plane: FakePlane) -> tuple[list[str], list[list[list[int]]]]:
    """Returns the artifacts of the served model, and the shapes of the buckets in its signature."""
    route = plane.routed("m")
    assert route
    order = plane.models[route["main"]]
    shapes = [each["inputs"] for each in order["signature"]["buckets"]]
    return [part["artifact"] for part in order["parts"]], shapes


async def test_the_buckets_are_loaded_together_the_smallest_first(plane: FakePlane, serving: Serving) -> None:
    tables = Tables()
    tables.push("m")
    builds = {length: bucket(tables, length) for length in reversed(SIZES)}
    async with serving(tables) as registry:
        await registry.resolve("m")
        assert loaded(plane) == ([builds[length].artifact for length in SIZES], [[[1, length]] for length in SIZES])
        (served,) = registry.in_memory()
        assert served.signature.inputs[0].shape == served.signature.outputs[0].shape == (1, -1)


async def test_the_smallest_bucket_serves_until_the_others_are_built(plane: FakePlane, serving: Serving) -> None:
    tables = Tables()
    tables.push("m")
    first = bucket(tables, 4)
    async with serving(tables, ONCE) as registry:
        await registry.resolve("m")
        assert loaded(plane)[0] == [first.artifact]
        second = bucket(tables, 8)
        await registry.refresh("m")
        assert loaded(plane)[0] == [first.artifact, second.artifact]


async def test_a_lost_bucket_does_not_affect_the_others(plane: FakePlane, serving: Serving) -> None:
    tables = Tables()
    tables.push("m")
    first = bucket(tables, 4)
    bucket(tables, 8, lost=True)
    last = bucket(tables, 16)
    async with serving(tables) as registry:
        await registry.resolve("m")
        assert loaded(plane)[0] == [first.artifact, last.artifact]


async def test_a_newer_list_of_shapes_replaces_an_older_one(plane: FakePlane, serving: Serving) -> None:
    tables = Tables()
    tables.push("m")
    for length in SIZES:
        bucket(tables, length)
    newer = [bucket(tables, length, (2, 3)) for length in (2, 3)]
    async with serving(tables) as registry:
        await registry.resolve("m")
        assert loaded(plane)[0] == [build.artifact for build in newer]
