"""The data plane sends the inputs of sampled requests to the control plane, after the responses."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import numpy as np
import pytest

from service.workers.data_plane import orders
from service.workers.data_plane.messages import Sample
from tests.support.data_plane import DataPlane, as_json, connect
from tests.support.runners import affine, digits
from tests.support.tables import Tables
from tests.support.waiting import eventually_async

pytestmark = pytest.mark.anyio

PICTURE = np.arange(64, dtype=np.uint8).reshape(1, 8, 8, 1)
X, A, B = np.full((1, 4), 1.5, np.float32), np.full((1, 4), 2, np.int8), np.full((1, 4), 3, np.int64)


class Samples:
    """Records samples in place of a `Sampler`."""

    def __init__(self) -> None:
        self.received: list[tuple[Sample, bytes]] = []

    def sampled(self, sample: Sample, data: bytes) -> None:
        self.received.append((sample, data))


def record(client: httpx.AsyncClient) -> Samples:
    samples = Samples()
    plane_of(client).orders.listener.sampler = samples  # type: ignore[attr-defined]
    return samples


def plane_of(client: httpx.AsyncClient) -> DataPlane:
    plane: DataPlane = client.plane  # type: ignore[attr-defined]
    return plane


def share(client: httpx.AsyncClient, share: float, *models: str) -> None:
    keys = {each.identity.model: each.key for each in plane_of(client).registry.in_memory()}
    plane_of(client).orders.order(orders.samples({keys[model]: share for model in models}))


async def send(client: httpx.AsyncClient, model: str, request: dict[str, Any]) -> int:
    return (await client.post(f"/v2/models/{model}/infer", json=request)).status_code


@pytest.fixture
def tables() -> Tables:
    tables = Tables()
    tables.model("digits", digits)
    tables.model("affine", affine)
    return tables


async def test_the_elements_are_in_the_order_of_the_signature(tables: Tables) -> None:
    inputs = [as_json(array, name)["inputs"][0] for name, array in (("b", B), ("x", X), ("a", A))]
    async with connect(tables) as client:
        samples = record(client)
        assert await send(client, "affine", {"inputs": inputs}) == 200
        share(client, 1.0, "affine")
        assert await send(client, "affine", {"inputs": inputs}) == 200
        await eventually_async(lambda: bool(samples.received))
    ((sample, data),) = samples.received
    assert sample["dropped"] == 0
    assert data == X.tobytes() + A.tobytes() + B.tobytes()


async def test_only_answered_requests_of_chosen_models_are_sent(tables: Tables) -> None:
    async with connect(tables) as client:
        samples = record(client)
        picture, refused = as_json(PICTURE, "image"), as_json(PICTURE[:, :4], "image")
        for model, inputs in (("digits", picture), ("affine", {"inputs": []})):
            await send(client, model, inputs)
        share(client, 1.0, "digits")
        assert await send(client, "digits", refused) == 400
        assert await send(client, "affine", {"inputs": []}) == 400
        assert await send(client, "digits", picture) == 200
        await eventually_async(lambda: bool(samples.received))
        share(client, 0.0, "digits")
        assert await send(client, "digits", picture) == 200
        await asyncio.sleep(1.0)  # two reports
    assert [data for _, data in samples.received] == [PICTURE.tobytes()]


async def test_samples_that_are_too_many_are_dropped_and_counted(tables: Tables) -> None:
    async with connect(tables) as client:
        samples = record(client)
        picture = as_json(PICTURE, "image")
        assert await send(client, "digits", picture) == 200
        share(client, 1.0, "digits")
        sent = 0

        async def send_many() -> int:
            statuses = await asyncio.gather(*(send(client, "digits", picture) for _ in range(8)))
            return statuses.count(200)

        while sum(sample["dropped"] for sample, _ in samples.received) == 0:
            sent += await send_many()
        total = len(samples.received) + sum(sample["dropped"] for sample, _ in samples.received)
    assert 0 < total <= sent


async def test_a_share_is_the_fraction_of_requests(tables: Tables) -> None:
    async with connect(tables) as client:
        samples = record(client)
        picture = as_json(PICTURE, "image")
        assert await send(client, "digits", picture) == 200
        share(client, 0.1, "digits")
        sent = 0
        while sent < 400:
            statuses = await asyncio.gather(*(send(client, "digits", picture) for _ in range(4)))
            sent += statuses.count(200)
        await asyncio.sleep(1.0)  # two reports
    chosen = len(samples.received) + sum(sample["dropped"] for sample, _ in samples.received)
    assert 10 <= chosen <= 80  # 40 are expected; fewer than 10 or more than 80 have a probability below 1e-8
