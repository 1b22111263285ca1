"""The statistics and model_configuration extensions, which perf_analyzer uses."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest

from tests.support.data_plane import as_binary, as_json, connect
from tests.support.runners import affine, digits, identity
from tests.support.tables import Tables

pytestmark = pytest.mark.anyio

REQUEST = as_json(np.zeros((1, 8, 8, 1), np.uint8), "image")
DURATIONS = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")


@pytest.fixture
def tables() -> Tables:
    tables = Tables()
    tables.model("digits", digits)
    tables.model("batched", lambda: identity("INT8", 1, 4))
    wider = tables.built("batched", 1, lambda: identity("INT8", 8, 4))
    tables.builds[0] = replace(wider, options={"batch": 8})
    return tables


async def stats(client: httpx.AsyncClient, path: str) -> dict[str, Any]:
    (found,) = (await client.get(f"/v2/models/{path}")).json()["model_stats"]
    return dict(found)


def counts(stats: dict[str, Any]) -> dict[str, int]:
    return {name: stats["inference_stats"][name]["count"] for name in DURATIONS}


async def test_a_model_without_requests(tables: Tables) -> None:
    async with connect(tables) as client:
        found = await stats(client, "digits/stats")
    zero = {"count": 0, "ns": 0}
    assert found == {
        "name": "digits",
        "version": "1",
        "last_inference": 0,
        "inference_count": 0,
        "execution_count": 0,
        "inference_stats": dict.fromkeys(DURATIONS, zero),
        "batch_stats": [],
    }


async def test_every_step_of_every_request_is_counted(tables: Tables) -> None:
    before_ms = time.time_ns() // 1_000_000
    async with connect(tables) as client:
        for _ in range(3):
            await client.post("/v2/models/digits/infer", json=REQUEST)
        await client.post("/v2/models/digits/infer", json={"inputs": []})
        found = await stats(client, "digits/versions/1/stats")
    assert counts(found) == {
        **dict.fromkeys(("success", "queue", "compute_input", "compute_infer", "compute_output"), 3),
        **{"fail": 1, "cache_hit": 0, "cache_miss": 0},
    }
    assert before_ms <= found["last_inference"] <= time.time_ns() // 1_000_000
    times = {name: found["inference_stats"][name]["ns"] for name in DURATIONS}
    assert times["success"] >= sum(times[name] for name in ("compute_input", "compute_infer", "compute_output")) > 0


async def test_a_batch_is_one_execution_of_several_samples(tables: Tables) -> None:
    async with connect(tables) as client:
        for samples in (1, 8, 8):
            body, headers = as_binary({"x": np.zeros((samples, 4), np.int8)})
            assert (await client.post("/v2/models/batched/infer", content=body, headers=headers)).status_code == 200
        found = await stats(client, "batched/stats")
    assert (found["inference_count"], found["execution_count"]) == (17, 3)
    assert [(each["batch_size"], each["compute_infer"]["count"]) for each in found["batch_stats"]] == [(1, 1), (8, 2)]
    assert found["inference_stats"]["compute_infer"]["ns"] == sum(
        each["compute_infer"]["ns"] for each in found["batch_stats"]
    )


async def test_statistics_cover_loaded_and_unloaded_models(tables: Tables) -> None:
    tables.model("affine", affine)
    async with connect(tables) as client:
        assert (await client.get("/v2/models/stats")).json() == {"model_stats": []}
        await client.post("/v2/models/digits/infer", json=REQUEST)
        await client.get("/v2/models/affine/ready")
        await client.post("/v2/repository/models/digits/unload")
        found = (await client.get("/v2/models/stats")).json()["model_stats"]
    assert [(each["name"], each["inference_count"]) for each in found] == [("affine", 0), ("digits", 1)]


@pytest.mark.parametrize("path", ["cats/stats", "digits/versions/2/stats", "cats/config", "digits/versions/x/config"])
async def test_unknown_models_are_not_found(tables: Tables, path: str) -> None:
    async with connect(tables) as client:
        assert (await client.get(f"/v2/models/{path}")).status_code == 404


async def test_the_configuration_of_a_model_without_batches(tables: Tables) -> None:
    async with connect(tables) as client:
        config = (await client.get("/v2/models/digits/versions/1/config")).json()
        assert {
            name: config[name] for name in ("name", "platform", "backend", "max_batch_size", "input", "output")
        } == {
            "name": "digits",
            "platform": "octet_plan",
            "backend": "octet",
            "max_batch_size": 0,
            "input": [{"name": "image", "data_type": "TYPE_UINT8", "dims": [1, 8, 8, 1]}],
            "output": [
                {"name": "columns", "data_type": "TYPE_INT32", "dims": [1, 8]},
                {"name": "top", "data_type": "TYPE_UINT8", "dims": [1]},
            ],
        }


async def test_the_configured_shape_has_no_batch_dimension(tables: Tables) -> None:
    async with connect(tables) as client:
        config = (await client.get("/v2/models/batched/config")).json()
    assert config["max_batch_size"] == 8
    assert config["input"] == [{"name": "x", "data_type": "TYPE_INT8", "dims": [4]}]
