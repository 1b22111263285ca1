"""A model that was built for several batch sizes answers each by its own artifact."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial

import numpy as np
import pytest

from service.core.build import Build
from service.core.errors import CorruptBlob, InvalidTensor
from service.core.options import with_batch, with_tuning
from service.workers.inference import Registry
from tests.support.data_plane import as_json, connect
from tests.support.runners import FunctionRunner, identity
from tests.support.tables import TARGET, Tables

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def variant(tables: Tables, batch: int, load: object) -> Build:
    build = tables.built("m", 1, load)  # type: ignore[arg-type]
    tables.builds[0] = replace(build, options=with_batch(batch))
    return tables.builds[0]


@asynccontextmanager
async def serving(tables: Tables) -> AsyncIterator[Registry]:
    registry = Registry(tables, tables, tables, targets=(TARGET,), refresh_s=0.01)
    try:
        yield registry
    finally:
        await registry.close()


def batch_of(batch: int) -> np.ndarray:
    return np.arange(batch * 3, dtype=np.int8).reshape(batch, 3)


async def test_each_size_runs_on_its_own_artifact_when_it_is_warm() -> None:
    tables, four = Tables(), identity("INT8", 4, 3)
    tables.model("m", partial(identity, "INT8", 1, 3))
    variant(tables, 4, lambda: four)
    async with serving(tables) as registry:
        await registry.load("m")
        warm_ups = four.calls
        assert warm_ups > 0
        for batch, calls in ((1, 0), (4, 1)):
            outputs = await registry.infer("m", None, [batch_of(batch)])
            np.testing.assert_array_equal(outputs[0], batch_of(batch))
            assert four.calls - warm_ups == calls
        with pytest.raises(InvalidTensor):
            await registry.infer("m", None, [batch_of(5)])


@pytest.mark.parametrize("batch", [2, 3, 5, 6, 7])
async def test_a_size_that_was_not_built_is_computed_by_those_that_were(batch: int) -> None:
    tables = Tables()
    tables.model("m", partial(identity, "INT8", 1, 3))
    for size in (4, 7):
        variant(tables, size, partial(identity, "INT8", size, 3))
    async with serving(tables) as registry:
        np.testing.assert_array_equal((await registry.infer("m", None, [batch_of(batch)]))[0], batch_of(batch))


async def test_a_variant_joins_the_model_that_is_served_already() -> None:
    tables = Tables()
    tables.model("m", partial(identity, "INT8", 1, 3))
    async with serving(tables) as registry:
        await registry.infer("m", None, [batch_of(1)])
        variant(tables, 4, partial(identity, "INT8", 4, 3))
        async with asyncio.timeout(10):
            while not (served := await registry.acquire("m")).batches:
                served.release()
                await asyncio.sleep(0.01)
        served.release()
        await registry.infer("m", None, [batch_of(4)])


async def test_a_variant_alone_serves_nothing_and_a_broken_one_takes_nothing_down() -> None:
    tables = Tables()
    tables.model("m", partial(identity, "INT8", 1, 3))
    broken = variant(tables, 4, CorruptBlob("gone"))
    async with serving(tables) as registry:
        await registry.infer("m", None, [batch_of(1)])
        assert broken not in tables.builds  # a push builds it again


@pytest.mark.parametrize(("days", "wins"), [(1, "tuned"), (-1, "plain")])
async def test_a_tuned_build_serves_until_a_newer_one_is_made(days: int, wins: str) -> None:
    """However often the plain one is asked for again, which puts it first."""
    tables = Tables()
    runners = {"tuned": identity("INT8", 1, 3), "plain": identity("INT8", 1, 3)}
    tuned = replace(tables.model("m", lambda: runners["tuned"]), options=with_tuning({}, 60.0))
    tables.builds[0] = replace(tuned, created_at=tuned.created_at + timedelta(days=days))
    tables.built("m", 1, lambda: runners["plain"])
    async with serving(tables) as registry:
        await registry.infer("m", None, [batch_of(1)])
        assert [name for name, runner in runners.items() if runner.calls] == [wins]


async def test_a_request_says_its_size_and_others_are_told_which_there_are() -> None:
    tables = Tables()
    tables.model("m", lambda: _sum(1))
    variant(tables, 4, lambda: _sum(4))
    async with connect(tables) as client:
        for batch in (1, 4):
            response = await client.post("/v2/models/m/infer", json=as_json(batch_of(batch), "x"))
            assert response.json()["outputs"][0]["data"] == batch_of(batch).sum(axis=1).tolist()
        raw = await client.post(
            "/v2/models/m/infer", content=batch_of(4).tobytes(), headers={"Inference-Header-Content-Length": "0"}
        )
        assert raw.json()["outputs"][0]["shape"] == [4]
        refused = await client.post("/v2/models/m/infer", json=as_json(batch_of(5), "x"))
        assert refused.status_code == 400
        assert "batches of up to 4" in refused.json()["hint"]


def _sum(batch: int) -> FunctionRunner:
    runner = identity("INT8", batch, 3)
    outputs = (replace(runner.signature.outputs[0], datatype="INT32", shape=(batch,)),)
    return FunctionRunner(replace(runner.signature, outputs=outputs), lambda x: (x.sum(axis=1, dtype=np.int32),))
