"""Models under a memory budget: loaded when asked for, unloaded when others need the room, never while held."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import numpy as np
import pytest

from service.core.build import Build
from service.core.digest import digest_of
from service.core.errors import NotReady
from service.workers.inference import Registry, loader
from service.workers.inference.memory import Memory, Weight, together
from tests.support.runners import digits
from tests.support.tables import TARGET, Tables

pytestmark = pytest.mark.anyio
BLACK = [np.zeros((1, 8, 8, 1), np.uint8)]
CONSTANTS, OTHERS = digest_of(b"constants"), digest_of(b"other constants")
LIMIT_BYTES = 100


def test_a_file_that_several_models_map_counts_once() -> None:
    weights = [Weight({CONSTANTS: 30}, 5), Weight({CONSTANTS: 30, OTHERS: 20}, 7)]
    assert together(weights).total_bytes == 62
    memory = Memory(LIMIT_BYTES)
    receipts = [memory.take(weight) for weight in weights]
    assert memory.used_bytes == 62
    assert memory.has_room(Weight({CONSTANTS: 30, OTHERS: 20}, 38))
    assert not memory.has_room(Weight({OTHERS: 20}, 39))
    memory.give_back(receipts[0])
    assert memory.used_bytes == 57


def test_without_a_limit_there_is_always_room() -> None:
    assert Memory(0).has_room(Weight({}, 1 << 60))


class Tenants(Tables):
    """Models a, b, c … of 40 bytes each: two fit."""

    def __init__(self, count: int = 3) -> None:
        super().__init__()
        for bias, name in enumerate("abcdef"[:count]):
            self.tenant(name, bias)

    def tenant(self, name: str, bias: int, weight: Weight | None = None) -> Build:
        build = self.built(name, self.push(name), partial(digits, bias))
        assert build.artifact
        self.weights[build.artifact] = weight or Weight({build.artifact: 30}, 10)
        return build


@asynccontextmanager
async def serving(tables: Tables, refresh_s: float = 1e6) -> AsyncIterator[Registry]:
    registry = Registry(
        tables, tables, tables, aliases=tables, targets=(TARGET,), refresh_s=refresh_s, memory_bytes=LIMIT_BYTES
    )
    try:
        yield registry
    finally:
        await registry.close()


async def ask(registry: Registry, *models: str) -> list[int]:
    return [int((await registry.infer(model, None, BLACK))[1][0]) for model in models]


async def loaded(registry: Registry) -> str:
    return "".join(each.model for each in await registry.index() if each.state == "READY")


async def test_what_was_not_used_for_longest_makes_room() -> None:
    tables = Tenants()
    async with serving(tables) as registry:
        await ask(registry, "a", "b", "a", "c")
        assert await loaded(registry) == "ac"
        assert await ask(registry, "b") == [1]
        assert await loaded(registry) == "bc"
        assert len(tables.loads) == 4


async def test_a_model_that_a_request_holds_is_never_unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "_PATIENCE_S", 0.05)
    async with serving(Tenants()) as registry:
        a, b = await registry.acquire("a"), await registry.acquire("b")
        with pytest.raises(NotReady, match=r"version 1 of model 'c' needs .* models in use take") as caught:
            await registry.acquire("c")
        assert "OCTET_MODEL_MEMORY_BYTES" in str(caught.value.hint)
        assert [int((await held.infer(BLACK))[1][0]) for held in (a, b)] == [0, 1]
        b.release()
        assert await ask(registry, "c") == [2]
        assert await loaded(registry) == "ac"
        a.release()


async def test_a_request_waits_for_the_room_of_another() -> None:
    async with serving(Tenants()) as registry:
        held = [await registry.acquire(model) for model in "ab"]
        asking = asyncio.create_task(ask(registry, "c"))
        await asyncio.sleep(0.05)
        assert not asking.done()
        for each in held:
            each.release()
        assert await asking == [2]


async def test_a_model_larger_than_the_budget_is_refused_and_unloads_nobody() -> None:
    tables = Tenants()
    tables.tenant("huge", 9, Weight({CONSTANTS: 90}, 11))
    async with serving(tables) as registry:
        await ask(registry, "a", "b")
        for _ in range(2):
            with pytest.raises(NotReady, match=r"'huge' needs 0\.0 MB; the limit for all models together is"):
                await registry.acquire("huge")
        assert await loaded(registry) == "ab"
        assert len(tables.loads) == 2


async def test_models_of_the_same_constants_fit_together() -> None:
    tables = Tenants(0)
    for bias, name in enumerate("abcd"):
        tables.tenant(name, bias, Weight({CONSTANTS: 60}, 10))
    async with serving(tables) as registry:
        await ask(registry, *"abcd")
        assert await loaded(registry) == "abcd"


async def test_a_new_version_takes_the_place_of_the_old_where_both_have_no_room() -> None:
    tables = Tenants(0)
    tables.tenant("a", 1, Weight({CONSTANTS: 80}, 10))
    async with serving(tables) as registry:
        assert await ask(registry, "a") == [1]
        tables.tenant("a", 2, Weight({OTHERS: 80}, 10))
        await registry.refresh("a")
        assert await ask(registry, "a") == [2]


async def test_a_new_version_that_has_no_room_leaves_the_old_answering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "_PATIENCE_S", 0.05)
    tables = Tenants(0)
    tables.tenant("a", 1, Weight({CONSTANTS: 80}, 10))
    async with serving(tables) as registry:
        held = await registry.acquire("a")
        tables.tenant("a", 2, Weight({OTHERS: 80}, 10))
        await registry.refresh("a")
        assert await ask(registry, "a") == [1]
        held.release()


async def test_many_models_under_load_answer_all_their_requests_within_the_budget() -> None:
    tables = Tenants(6)
    async with serving(tables, refresh_s=0.01) as registry:
        models = [str(model) for model in np.random.default_rng(0).choice(list("abcdef"), 300)]

        async def client(mine: list[str]) -> None:
            for model in mine:
                assert await ask(registry, model) == ["abcdef".index(model)]
                assert registry.memory_bytes <= LIMIT_BYTES

        await asyncio.gather(*(client(models[start::6]) for start in range(6)))
        assert len(await loaded(registry)) <= 2


async def test_preloaded_models_are_ready_before_the_server_is(caplog: pytest.LogCaptureFixture) -> None:
    tables = Tenants()
    async with serving(tables) as registry:
        preloading = registry.preload([("a", None), ("cats", None), ("b", 1)])
        assert (registry.is_ready, registry.unready) == (False, "models are being loaded")
        await preloading
        assert registry.is_ready
        assert await loaded(registry) == "ab"
        assert "model cats cannot be preloaded" in caplog.text


async def test_all_models_are_preloaded_that_are_built() -> None:
    tables = Tenants(2)
    tables.push("unbuilt")
    async with serving(tables) as registry:
        await registry.preload(None)
        assert await loaded(registry) == "ab"
        await registry.preload([])
        assert registry.is_ready
