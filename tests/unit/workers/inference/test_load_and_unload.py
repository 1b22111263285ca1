"""Models that are loaded and unloaded by hand, and the index that says how each stands."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import numpy as np
import pytest

from service.core.build import BuildState
from service.core.errors import NotFound, NotReady
from service.workers.inference import Indexed, ModelState, Registry
from tests.support.runners import FunctionRunner, digits
from tests.support.tables import TARGET, Tables
from tests.support.waiting import GIVE_UP_S

pytestmark = pytest.mark.anyio
BLACK = [np.zeros((1, 8, 8, 1), np.uint8)]
REFRESH_S = 0.01


@asynccontextmanager
async def serving(tables: Tables) -> AsyncIterator[Registry]:
    registry = Registry(tables, tables, tables, targets=(TARGET,), refresh_s=REFRESH_S)
    try:
        yield registry
    finally:
        await registry.close()


async def states(registry: Registry) -> list[tuple[str, int, str]]:
    return [(each.model, each.version, each.state) for each in await registry.index()]


def two_versions() -> Tables:
    tables = Tables()
    for bias in (1, 2):
        tables.built("digits", tables.push("digits"), partial(digits, bias))
    return tables


async def test_a_model_that_was_loaded_is_ready_before_the_first_request() -> None:
    tables = two_versions()
    async with serving(tables) as registry:
        await registry.load("digits")
        await registry.load("digits", 1)
        assert len(tables.loads) == 2
        await registry.infer("digits", None, BLACK)
        assert len(tables.loads) == 2
        assert await states(registry) == [("digits", 1, "READY"), ("digits", 2, "READY")]


async def test_an_unloaded_model_is_refused_until_it_is_loaded() -> None:
    async with serving(two_versions()) as registry:
        await registry.load("digits")
        await registry.unload("digits")
        for version in (None, 1, 2):
            with pytest.raises(NotReady, match="was unloaded") as caught:
                await registry.acquire("digits", version)
        assert "/v2/repository/models/digits/load" in str(caught.value.hint)
        assert {each.reason for each in await registry.index()} == {"it was unloaded"}
        await registry.load("digits")
        assert await states(registry) == [("digits", 1, "UNAVAILABLE"), ("digits", 2, "READY")]


async def test_without_the_newest_version_the_one_before_answers() -> None:
    async with serving(two_versions()) as registry:
        await registry.load("digits")
        await registry.unload("digits", 2)
        assert (await registry.infer("digits", None, BLACK))[1][0] == 1
        with pytest.raises(NotReady, match="version 2 of model 'digits' was unloaded"):
            await registry.acquire("digits", 2)


async def test_a_request_that_holds_an_unloaded_model_is_answered() -> None:
    async with serving(two_versions()) as registry:
        held = await registry.acquire("digits")
        await registry.unload("digits")
        assert (await held.infer(BLACK))[1][0] == 2
        held.release()
        await held.closed()


async def test_a_model_that_is_unloaded_while_it_is_loaded_stays_unloaded() -> None:
    tables, loading, may_load = Tables(), threading.Event(), threading.Event()

    def slowly() -> FunctionRunner:
        loading.set()
        assert may_load.wait(GIVE_UP_S)
        return digits()

    tables.model("digits", slowly)
    async with serving(tables) as registry:
        load = asyncio.create_task(registry.load("digits"))
        await asyncio.to_thread(loading.wait, 10)
        assert await registry.index() == [Indexed("digits", 1, ModelState.LOADING, "it is being loaded")]
        await registry.unload("digits")
        may_load.set()
        with pytest.raises(NotReady, match="was unloaded"):
            await load
        assert await states(registry) == [("digits", 1, "UNAVAILABLE")]


async def test_load_tries_again_at_once_what_could_not_be_loaded() -> None:
    tables = Tables()
    build = tables.built("digits", tables.push("digits"), NotReady("no memory"))
    async with serving(tables) as registry:
        for _ in range(2):
            with pytest.raises(NotReady, match="no memory"):
                await registry.acquire("digits")
        assert len(tables.loads) == 1
        assert [each.reason for each in await registry.index()] == ["no memory"]
        tables._load[build.artifact] = digits  # type: ignore[index]
        await registry.load("digits")
        assert await states(registry) == [("digits", 1, "READY")]


async def test_the_index_says_why_a_model_is_not_ready() -> None:
    tables = Tables()
    tables.model("lazy", digits)
    tables.build("queued", tables.push("queued"), BuildState.QUEUED)
    tables.push("unbuilt")
    async with serving(tables) as registry:
        assert {each.model: each.reason for each in await registry.index()} == {
            "lazy": "it is loaded by the first request for it",
            "queued": "version 1 of model 'queued' is being built (queued)",
            "unbuilt": "version 1 of model 'unbuilt' has not been built",
        }


async def test_an_unknown_model_is_neither_loaded_nor_unloaded() -> None:
    async with serving(two_versions()) as registry:
        for change in (registry.load, registry.unload):
            with pytest.raises(NotFound, match="no model 'cats'"):
                await change("cats")
            with pytest.raises(NotFound, match="no version 3"):
                await change("digits", 3)
