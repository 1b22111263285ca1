"""Tests of a memory budget: models are loaded on request, and unloaded if others need the memory, but never while they
are held.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
import pytest

from service.core.builds.build import Build
from service.core.digest import digest_of
from service.core.errors import NotReady
from service.workers.inference import Registry, loader
from service.workers.inference.memory import Memory, Weight, together
from tests.support.fake_plane import FakePlane, answerer
from tests.support.tables import Tables
from tests.support.waiting import GIVE_UP_S, eventually_async
from tests.unit.workers.inference.conftest import Serving, blank

pytestmark = pytest.mark.anyio
CONSTANTS, OTHERS = digest_of(b"constants"), digest_of(b"other constants")
LIMIT_BYTES = 100
LIMITED = {"refresh_s": 1e6, "memory_bytes": LIMIT_BYTES}


def test_a_file_that_several_models_map_counts_once() -> None:
    weights = [Weight({CONSTANTS: 30}, 5), Weight({CONSTANTS: 30, OTHERS: 20}, 7)]
    assert together(weights).total_bytes == 62
    memory = Memory(LIMIT_BYTES)
    receipts = [memory.take(weight) for weight in weights]
    assert memory.used_bytes("cpu") == 62
    assert memory.has_room(Weight({CONSTANTS: 30, OTHERS: 20}, 38))
    assert not memory.has_room(Weight({OTHERS: 20}, 39))
    memory.give_back(receipts[0])
    assert memory.used_bytes("cpu") == 57


def test_without_a_limit_every_model_fits() -> None:
    assert Memory(0).has_room(Weight({}, 1 << 60))


def test_gpus_have_a_separate_budget() -> None:
    memory = Memory(LIMIT_BYTES, 50)
    receipt = memory.take(Weight({CONSTANTS: 30}, 15, "cuda"))
    assert (memory.used_bytes("cpu"), memory.used_bytes("cuda")) == (0, 45)
    assert memory.has_room(Weight({CONSTANTS: 30}, 70))
    assert memory.has_room(Weight({CONSTANTS: 30}, 5, "cuda"))
    assert not memory.has_room(Weight({CONSTANTS: 30}, 6, "cuda"))
    assert memory.device(receipt) == "cuda"


class Tenants(Tables):
    """The models a, b, c … of 40 bytes each, of which two fit."""

    def __init__(self, count: int = 3) -> None:
        super().__init__()
        for name in "abcdef"[:count]:
            self.tenant(name)

    def tenant(self, name: str, weight: Weight | None = None) -> Build:
        build = self.built(name, self.push(name), blank)
        assert build.artifact
        self.weights[build.artifact] = weight or Weight({build.artifact: 30}, 10)
        return build


async def ask(registry: Registry, plane: FakePlane, *models: str) -> list[int]:
    """Returns the keys of the models that serve requests for these names, in their order."""
    return [(await answerer(registry, plane, model))["main"] for model in models]


def loaded(plane: FakePlane) -> str:
    return "".join(sorted(each["model"] for each in plane.models.values()))


async def test_the_least_recently_used_model_is_unloaded(plane: FakePlane, serving: Serving) -> None:
    async with serving(Tenants(), **LIMITED) as registry:
        await ask(registry, plane, "a", "b", "a", "c")
        assert loaded(plane) == "ac"
        await ask(registry, plane, "b")
        assert loaded(plane) == "bc"
        assert len(plane.loads) == 4


async def test_a_model_in_use_is_never_unloaded(
    plane: FakePlane, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(Tenants(), **LIMITED) as registry:
        a, b = await ask(registry, plane, "a", "b")
        with plane.using(a):
            with plane.using(b), monkeypatch.context() as in_a_hurry:
                in_a_hurry.setattr(loader, "_PATIENCE_S", 0.05)
                with pytest.raises(NotReady, match=r"'c' needs .* models in use take") as caught:
                    await registry.resolve("c")
            assert "OCTET_MODEL_MEMORY_BYTES" in str(caught.value.hint)
            assert loaded(plane) == "ab"
            await ask(registry, plane, "c")
            assert loaded(plane) == "ac"


async def test_a_request_waits_for_the_memory_of_another_model(plane: FakePlane, serving: Serving) -> None:
    async with serving(Tenants(), **LIMITED) as registry:
        with ExitStack() as held:
            for key in await ask(registry, plane, "a", "b"):
                held.enter_context(plane.using(key))
            asking = asyncio.create_task(registry.resolve("c"))
            await asyncio.sleep(0.05)
            assert not asking.done()
        await asking
        assert plane.routed("c")


async def test_a_model_larger_than_the_budget_is_refused_and_unloads_no_other(
    plane: FakePlane, serving: Serving
) -> None:
    tables = Tenants()
    tables.tenant("huge", Weight({CONSTANTS: 90}, 11))
    async with serving(tables, **LIMITED) as registry:
        await ask(registry, plane, "a", "b")
        for _ in range(2):
            with pytest.raises(NotReady, match=r"'huge' needs 0\.0 MB; the limit for all models together is"):
                await registry.resolve("huge")
        assert loaded(plane) == "ab"


async def test_its_state_contains_the_reason(plane: FakePlane, serving: Serving) -> None:
    tables = Tenants(1)
    huge = tables.tenant("huge", Weight({CONSTANTS: 90}, 11))
    async with serving(tables, **LIMITED) as registry:
        with pytest.raises(NotReady):
            await registry.resolve("huge")
        assert huge.artifact is not None
        assert "the limit for all models together" in str(registry.failure(huge.artifact))
        assert [each.reason for each in await registry.index() if "the limit" in each.reason]


async def test_models_with_the_same_constants_fit_together(plane: FakePlane, serving: Serving) -> None:
    tables = Tenants(0)
    for name in "abcd":
        tables.tenant(name, Weight({CONSTANTS: 60}, 10))
    async with serving(tables, **LIMITED) as registry:
        await ask(registry, plane, *"abcd")
        assert loaded(plane) == "abcd"


async def test_a_new_version_replaces_the_old_one_if_both_do_not_fit(plane: FakePlane, serving: Serving) -> None:
    tables = Tenants(0)
    tables.tenant("a", Weight({CONSTANTS: 80}, 10))
    async with serving(tables, **LIMITED) as registry:
        await ask(registry, plane, "a")
        newer = tables.tenant("a", Weight({OTHERS: 80}, 10))
        await registry.refresh("a")
        (key,) = await ask(registry, plane, "a")
        assert plane.artifact(key) == newer.artifact


async def test_a_new_version_that_does_not_fit_leaves_the_old_one_in_use(
    plane: FakePlane, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "_PATIENCE_S", 0.05)
    tables = Tenants(0)
    older = tables.tenant("a", Weight({CONSTANTS: 80}, 10))
    async with serving(tables, **LIMITED) as registry:
        (key,) = await ask(registry, plane, "a")
        with plane.using(key):
            tables.tenant("a", Weight({OTHERS: 80}, 10))
            await registry.refresh("a")
            assert plane.artifact(*await ask(registry, plane, "a")) == older.artifact


async def test_a_canary_that_does_not_fit_beside_the_stable_version_delays_no_request(
    plane: FakePlane, serving: Serving, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "_PATIENCE_S", 2 * GIVE_UP_S)
    tables = Tenants(2)
    tables.tenant("a")
    tables.promote("a", 1)
    tables.promote("a", 2, percent=10)
    async with serving(tables, refresh_s=0.01, memory_bytes=60) as registry:
        async with asyncio.timeout(GIVE_UP_S):
            for model in "abab":
                await ask(registry, plane, model)
                assert loaded(plane) == model
        assert "version 2 gets no requests" in caplog.text
        assert "versions 1 and 2 of model 'a' together need" in caplog.text


async def test_waiting_after_a_canary_has_the_full_time_limit(
    plane: FakePlane, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "_PATIENCE_S", 0.2)
    tables = Tenants(3)
    tables.tenant("a")
    tables.promote("a", 1)
    tables.promote("a", 2, percent=10)
    async with serving(tables, **LIMITED) as registry:
        (key,) = await ask(registry, plane, "b")
        with plane.using(key):
            with_canary = asyncio.create_task(registry.resolve("a"))
            await eventually_async(registry._loader._making_room.locked)
            await eventually_async(lambda: loaded(plane) == "ab")
            monkeypatch.setattr(loader, "_PATIENCE_S", 0.0)
            behind = asyncio.create_task(registry.resolve("c"))
            await asyncio.sleep(0.05)
            monkeypatch.setattr(loader, "_PATIENCE_S", GIVE_UP_S)
            await with_canary
            await behind
            assert loaded(plane) == "bc"


class Slow(Tenants):
    """Tables whose reading blocks until `free` is set. `asked` is set when the model `slow` is looked up."""

    def __init__(self) -> None:
        super().__init__(2)
        self.slow = ""
        self.asked, self.free = threading.Event(), threading.Event()

    def serving(self, model: str, version: int | None, targets: Sequence[str]) -> list[Build]:
        found = super().serving(model, version, targets)
        if model == self.slow:
            self.asked.set()
            assert self.free.wait(GIVE_UP_S)
        return found


async def replaced_while_looked_for(registry: Registry, tables: Slow) -> asyncio.Task[None]:
    """Returns a refresh of `a`, during which the loading of `b` has evicted `a`."""
    await registry.resolve("a")
    tables.slow = "a"
    looking = asyncio.create_task(registry.refresh("a"))
    await asyncio.to_thread(tables.asked.wait, GIVE_UP_S)
    await registry.resolve("b")
    return looking


async def test_a_refresh_does_not_reload_an_evicted_model(plane: FakePlane, serving: Serving) -> None:
    tables = Slow()
    async with serving(tables, refresh_s=1e6, memory_bytes=60) as registry:
        looking = await replaced_while_looked_for(registry, tables)
        tables.free.set()
        await looking
        assert loaded(plane) == "b"
        assert len(plane.loads) == 2


async def test_a_request_during_the_refresh_does_reload_it(plane: FakePlane, serving: Serving) -> None:
    tables = Slow()
    async with serving(tables, refresh_s=1e6, memory_bytes=60) as registry:
        looking = await replaced_while_looked_for(registry, tables)
        asking = asyncio.create_task(registry.resolve("a"))
        await asyncio.sleep(0)
        tables.free.set()
        await asyncio.gather(looking, asking)
        assert loaded(plane) == "a"


async def test_many_models_under_load_answer_all_requests_within_the_budget(plane: FakePlane, serving: Serving) -> None:
    async with serving(Tenants(6), refresh_s=0.01, memory_bytes=LIMIT_BYTES) as registry:
        models = [str(model) for model in np.random.default_rng(0).choice(list("abcdef"), 300)]

        async def client(mine: list[str]) -> None:
            for model in mine:
                await registry.resolve(model)
                assert registry.memory_bytes <= LIMIT_BYTES

        await asyncio.gather(*(client(models[start::6]) for start in range(6)))
        assert len(plane.models) <= 2


async def test_preloaded_models_are_ready_before_the_server(
    plane: FakePlane, serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(Tenants(), **LIMITED) as registry:
        preloading = registry.preload([("a", None), ("cats", None), ("b", 1)])
        assert (registry.is_ready, registry.unready) == (False, "models are being loaded")
        await preloading
        assert registry.is_ready
        assert loaded(plane) == "ab"
        assert "model cats cannot be preloaded" in caplog.text


async def test_preloading_loads_all_models_with_a_build(plane: FakePlane, serving: Serving) -> None:
    tables = Tenants(2)
    tables.push("unbuilt")
    async with serving(tables, **LIMITED) as registry:
        await registry.preload(None)
        assert loaded(plane) == "ab"
        await registry.preload([])
        assert registry.is_ready


async def test_models_on_gpus_evict_only_each_other(plane: FakePlane, serving: Serving) -> None:
    tables = Tenants(2)
    for name in "xyz":
        tables.tenant(name, Weight({}, 20, "cuda"))  # 10 bytes for each of two instances
    tables.tenant("huge", Weight({}, 51, "cuda"))
    async with serving(tables, **LIMITED, card_memory_bytes=LIMIT_BYTES) as registry:
        await ask(registry, plane, "a", "x", "b", "y", "z")
        assert loaded(plane) == "abyz"
        with pytest.raises(NotReady, match=r"'huge' needs 0\.0 MB on a GPU; the limit for all models") as caught:
            await registry.resolve("huge")
        assert "OCTET_CARD_MEMORY_BYTES" in str(caught.value.hint)
        assert loaded(plane) == "abyz"


async def test_the_cached_metadata_of_a_model_is_dropped_with_it(plane: FakePlane, serving: Serving) -> None:
    """If the cached metadata stayed, each push would leave an entry in the cache."""
    tables = Tables()
    async with serving(tables) as registry:
        for _ in range(5):
            tables.built("m", tables.push("m"), blank)
            await registry.resolve("m")
            await registry.refresh("m")
        await eventually_async(lambda: len(registry.in_memory()) == 1)
        assert len(plane.loads) == 5
        assert len(registry._loader._metadata) == 1
