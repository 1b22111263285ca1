"""The metrics of predict requests, as `/metrics` reports them."""

from __future__ import annotations

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.workers.inference.memory import Weight
from tests.support.data_plane import as_json, connect
from tests.support.runners import digits
from tests.support.tables import TARGET, Tables

pytestmark = pytest.mark.anyio

REQUEST = as_json(np.zeros((1, 8, 8, 1), np.uint8), "image")
MODEL = {"model": "digits", "version": "1", "target": TARGET}
Samples = dict[frozenset[tuple[str, str]], float]


async def scraped(client: httpx.AsyncClient, *names: str) -> list[Samples]:
    """Returns the samples of some metrics, keyed by their labels."""
    families = list(text_string_to_metric_families((await client.get("/metrics")).text))
    return [
        {
            frozenset(sample.labels.items()): sample.value
            for family in families
            for sample in family.samples
            if sample.name == name
        }
        for name in names
    ]


def labels(**members: str) -> frozenset[tuple[str, str]]:
    return frozenset({**MODEL, **members}.items())


@pytest.fixture
def tables() -> Tables:
    tables = Tables()
    tables.model("digits", digits)
    return tables


async def test_a_response_is_counted_once_in_every_metric(tables: Tables) -> None:
    async with connect(tables) as client:
        for _ in range(3):
            await client.post("/v2/models/digits/infer", json=REQUEST)
        requests, durations, queue, compute, rejected, artifacts = await scraped(
            client,
            "octet_requests_total",
            "octet_request_duration_seconds_count",
            "octet_queue_duration_seconds_count",
            "octet_compute_duration_seconds_count",
            "octet_requests_rejected_total",
            "octet_artifact_info",
        )
    answered = labels(protocol="rest", code="200")
    assert requests == durations == {answered: 3}
    assert queue == {labels(): 3}
    assert compute == {labels(phase=phase): 3 for phase in ("input", "infer", "output")}
    assert rejected == {}
    assert artifacts == {labels(digest=str(tables.builds[0].artifact), numerics="litert-reference"): 1}


async def test_the_memory_of_loaded_models_is_a_gauge(tables: Tables) -> None:
    artifact = tables.builds[0].artifact
    assert artifact is not None
    tables.weights[artifact] = Weight({}, 12_345)
    async with connect(tables) as client:
        assert await scraped(client, "octet_model_memory_bytes") == [{frozenset(): 0}]
        await client.post("/v2/models/digits/infer", json=REQUEST)
        assert await scraped(client, "octet_model_memory_bytes") == [{frozenset(): 12_345}]


async def test_a_response_contains_the_times_of_its_phases(tables: Tables) -> None:
    async with connect(tables) as client:
        response = await client.post("/v2/models/digits/infer", json=REQUEST)
        refusal = await client.post("/v2/models/digits/infer", json={})
    entries = dict(entry.split(";dur=") for entry in response.headers["server-timing"].split(", "))
    assert list(entries) == ["queue", "batch", "infer", "total"]
    took = {name: float(duration) for name, duration in entries.items()}
    assert 0 < took["queue"] + took["batch"] + took["infer"] <= took["total"] + 0.002  # each value is rounded
    assert "server-timing" not in refusal.headers


async def test_a_rejected_request_is_counted_by_reason(tables: Tables) -> None:
    tables.push("empty")
    async with connect(tables) as client:
        for name in ("digits", "cats", "empty"):
            await client.post(f"/v2/models/{name}/infer", json={})
        rejected, requests = await scraped(client, "octet_requests_rejected_total", "octet_requests_total")
    assert rejected == {frozenset({("reason", "invalid")}): 2, frozenset({("reason", "no_worker")}): 1}
    assert requests == {labels(protocol="rest", code="400"): 1}


async def test_client_input_never_becomes_a_label(tables: Tables) -> None:
    async with connect(tables) as client:
        await client.post("/v2/models/made-up/infer", json=REQUEST)
        await client.post("/v2/models/digits/infer", json={"id": "made-up", "inputs": [{"name": "made-up"}]})
        assert "made-up" not in (await client.get("/metrics")).text


async def test_a_reloaded_version_keeps_its_counts(tables: Tables) -> None:
    async with connect(tables) as client:
        for _ in range(2):
            assert (await client.post("/v2/models/digits/infer", json=REQUEST)).status_code == 200
            for action in ("unload", "load"):
                await client.post(f"/v2/repository/models/digits/{action}")
        requests, artifacts = await scraped(client, "octet_requests_total", "octet_artifact_info")
    assert requests == {labels(protocol="rest", code="200"): 2}
    assert len(artifacts) == 1


async def test_a_batch_is_counted_by_size(tables: Tables) -> None:
    async with connect(tables) as client:
        await client.post("/v2/models/digits/infer", json=REQUEST)
        assert await scraped(client, "octet_batch_size_count") == [{labels(): 1}]
