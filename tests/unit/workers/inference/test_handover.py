"""Tests that a new worker first loads the models that the other workers of its pool have in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from service.core.cluster.worker import Worker, WorkerKind
from service.core.errors import DatabaseUnreachable
from service.workers.inference import Registry
from service.workers.inference.handover import loaded_in, take_over
from service.workers.inference.memory import Weight
from service.workers.inference.routes import Name
from tests.support.fake_plane import FakePlane
from tests.support.tables import Tables
from tests.unit.workers.inference.conftest import Serving, blank

pytestmark = pytest.mark.anyio
NOW = datetime.now(UTC)
PATIENCE_S = 30.0


def worker(pool: str | None, *loaded: tuple[str, str]) -> Worker:
    return Worker("w", WorkerKind.INFERENCE, "host", 1, None, NOW, NOW, pool=pool, loaded=loaded)


def models(*names: str, weight: Weight | None = None) -> Tables:
    tables = Tables()
    for name in names:
        build = tables.built(name, tables.push(name), blank)
        assert build.artifact
        tables.weights[build.artifact] = weight or Weight({build.artifact: 30}, 10)
    return tables


async def taken_over(registry: Registry, names: Sequence[Name], within_s: float = PATIENCE_S) -> list[str]:
    """Returns the models that are in memory after the handover."""
    await take_over(lambda: names, registry, within_s)
    return sorted(served.identity.model for served in registry.in_memory())


def test_models_that_most_workers_have_come_first() -> None:
    there = [
        worker("p", ("a", ""), ("b", "2")),
        worker("p", ("b", "2"), ("b", "")),
        worker("other", ("c", "")),
        worker(None, ("d", "")),
    ]
    assert loaded_in("p", there) == [("b", "2"), ("a", ""), ("b", "")]


async def test_a_model_that_cannot_be_loaded_does_not_affect_the_others(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(models("a", "b")) as registry:
        assert await taken_over(registry, [("a", None), ("cats", None), ("b", 1)]) == ["a", "b"]
    assert "cannot load model cats, which other workers of the pool have" in caplog.text


async def test_it_stops_when_memory_is_full(serving: Serving, plane: FakePlane) -> None:
    """The models that most workers have stay loaded. Loading further models would evict them one after the other."""
    tables = models(*"abcdef")
    async with serving(tables, refresh_s=1e6, memory_bytes=100) as registry:
        await taken_over(registry, [(name, None) for name in "abcdef"])
        assert len(plane.loads) == 3, "the memory has room for two, so the third evicts one"


async def test_it_stops_after_the_time_limit_and_the_load_goes_on(
    serving: Serving, plane: FakePlane, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(models("a", "b")) as registry:
        plane.may_load.clear()
        assert await taken_over(registry, [("a", None), ("b", None)], within_s=0.05) == []
        assert "not all models of the pool were loaded within 0.05 s" in caplog.text
        plane.may_load.set()
        async with asyncio.timeout(PATIENCE_S):
            await registry.resolve("a")
        assert len(plane.loads) == 1


async def test_an_unreadable_table_is_not_fatal(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    def unreachable() -> Sequence[Name]:
        raise DatabaseUnreachable("the database is away")

    async with serving(models()) as registry:
        await take_over(unreachable, registry, PATIENCE_S)
    assert "the database is away" in caplog.text
