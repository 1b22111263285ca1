"""Which version answers for an alias, and how requests are shared with a canary."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import numpy as np
import pytest

from service.core.errors import NotFound, NotReady
from service.workers.inference import Reference, Registry
from tests.support.runners import digits
from tests.support.tables import TARGET, Tables

pytestmark = pytest.mark.anyio
BLACK = [np.zeros((1, 8, 8, 1), np.uint8)]


@pytest.fixture
def tables() -> Tables:
    """A model of three versions; each answers its number."""
    tables = Tables()
    for version in (1, 2, 3):
        tables.built("digits", tables.push("digits"), partial(digits, version))
    return tables


@asynccontextmanager
async def serving(tables: Tables, refresh_s: float = 0.01) -> AsyncIterator[Registry]:
    registry = Registry(tables, tables, tables, aliases=tables, targets=(TARGET,), refresh_s=refresh_s)
    try:
        yield registry
    finally:
        await registry.close()


async def answer(registry: Registry, reference: Reference = None) -> int:
    return int((await registry.infer("digits", reference, BLACK))[1][0])


async def chosen(registry: Registry, affinity: bytes | None = None) -> int:
    served = await registry.acquire("digits", affinity=affinity)
    served.release()
    return served.identity.version


async def test_an_alias_answers_as_its_version(tables: Tables) -> None:
    tables.promote("digits", 2)
    tables.promote("digits", 1, alias="mine")
    async with serving(tables) as registry:
        assert await answer(registry, "stable") == 2
        assert await answer(registry, "mine") == 1
        assert await answer(registry, "latest") == 3


async def test_who_names_no_version_gets_what_is_stable_once_it_is_set(tables: Tables) -> None:
    async with serving(tables, refresh_s=1e6) as registry:
        assert await answer(registry) == 3
        tables.promote("digits", 1)
        await registry.refresh("digits")
        assert await answer(registry) == 1


async def test_a_new_version_does_not_change_what_is_stable(tables: Tables) -> None:
    tables.promote("digits", 2)
    async with serving(tables, refresh_s=1e6) as registry:
        await answer(registry)
        tables.built("digits", tables.push("digits"), partial(digits, 4))
        await registry.refresh("digits")
        assert (await answer(registry), await answer(registry, "latest")) == (2, 4)


async def test_a_promotion_elsewhere_is_noticed(tables: Tables) -> None:
    tables.promote("digits", 1)
    async with serving(tables) as registry:
        assert await answer(registry) == 1
        tables.promote("digits", 2)
        async with asyncio.timeout(10):
            while await answer(registry) != 2:
                await asyncio.sleep(0.01)


async def test_what_no_alias_needs_any_more_is_unloaded(tables: Tables) -> None:
    tables.promote("digits", 1)
    async with serving(tables, refresh_s=1e6) as registry:
        await answer(registry)
        tables.promote("digits", 2)
        await registry.refresh("digits")
        assert [each.version for each in await registry.index() if each.state == "READY"] == [2]


async def test_a_promoted_version_that_cannot_be_loaded_leaves_the_one_before_answering(
    tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    tables.built("digits", tables.push("digits"), NotReady("no memory"))
    tables.promote("digits", 1)
    async with serving(tables, refresh_s=1e6) as registry:
        assert await answer(registry) == 1
        tables.promote("digits", 4)
        for _ in range(3):
            await registry.refresh("digits")
            assert await answer(registry) == 1
        assert caplog.text.count("what answers goes on") == 1
    async with serving(tables) as registry:
        with pytest.raises(NotReady, match="no memory"):
            await answer(registry)


async def test_a_canary_gets_its_share(tables: Tables) -> None:
    tables.promote("digits", 1)
    tables.promote("digits", 2, percent=25)
    async with serving(tables) as registry:
        counts = Counter([await chosen(registry) for _ in range(4000)])
    # 6 standard deviations of a binomial of 4000 at 1/4 are 164: it fails once in a billion runs
    assert counts.keys() == {1, 2}
    assert abs(counts[2] - 1000) < 164


async def test_the_same_affinity_gets_the_same_version_and_keeps_the_canary_as_it_grows(tables: Tables) -> None:
    keys = [str(number).encode() for number in range(1000)]
    tables.promote("digits", 1)
    tables.promote("digits", 2, percent=10)
    async with serving(tables, refresh_s=1e6) as registry:
        first = {key: await chosen(registry, key) for key in keys}
        assert {key: await chosen(registry, key) for key in keys} == first
        assert 50 < list(first.values()).count(2) < 160  # 100, and 6 standard deviations are 57; fixed by the hash
        tables.promote("digits", 2, percent=50)
        await registry.refresh("digits")
        grown = {key: await chosen(registry, key) for key in keys}
    assert all(grown[key] == 2 for key in keys if first[key] == 2)
    assert 400 < list(grown.values()).count(2) < 600


async def test_a_canary_that_cannot_be_loaded_gets_no_requests(tables: Tables) -> None:
    tables.built("digits", tables.push("digits"), NotReady("no memory"))
    tables.promote("digits", 1)
    tables.promote("digits", 4, percent=90)
    async with serving(tables) as registry:
        assert {await chosen(registry) for _ in range(50)} == {1}


async def test_a_canary_that_is_unloaded_gets_no_requests(tables: Tables) -> None:
    tables.promote("digits", 1)
    tables.promote("digits", 2, percent=90)
    async with serving(tables) as registry:
        assert 2 in {await chosen(registry) for _ in range(50)}
        await registry.unload("digits", 2)
        assert {await chosen(registry) for _ in range(50)} == {1}


async def test_a_prepared_version_is_loaded_once_and_stays_if_it_is_switched_to(tables: Tables) -> None:
    tables.promote("digits", 1)
    async with serving(tables, refresh_s=1e6) as registry:
        await answer(registry)
        async with registry.prepared("digits", 2):
            assert await answer(registry) == 1
            tables.promote("digits", 2)
            await registry.refresh("digits")
        assert await answer(registry) == 2
        async with registry.prepared("digits", 3):
            pass
        assert [each.version for each in await registry.index() if each.state == "READY"] == [2]
        assert len(tables.loads) == 3


async def test_the_versions_that_a_reference_stands_for(tables: Tables) -> None:
    tables.promote("digits", 1)
    tables.promote("digits", 3, percent=10)
    async with serving(tables) as registry:
        for reference, versions in ((None, [1, 2, 3]), (2, [2]), (9, []), ("stable", [1, 3]), ("latest", [3])):
            assert await registry.versions("digits", reference) == versions


async def test_unknown_aliases_are_not_found(tables: Tables) -> None:
    async with serving(tables) as registry:
        with pytest.raises(NotFound, match="no alias 'mine'"):
            await answer(registry, "mine")
        with pytest.raises(NotFound, match="no model 'cats'"):
            await registry.acquire("cats", "mine")
