"""The endpoints for liveness, readiness and metadata."""

from __future__ import annotations

import asyncio

import pytest

from service import __version__
from service.core.builds.build import BuildState
from service.core.models.signature import ModelSignature, Quantization, TensorSpec
from tests.support.data_plane import connect
from tests.support.runners import FunctionRunner, affine, digits
from tests.support.tables import Tables
from tests.support.waiting import GIVE_UP_S

pytestmark = pytest.mark.anyio


@pytest.fixture
def tables() -> Tables:
    tables = Tables()
    tables.model("digits", digits)
    tables.model("affine", affine)
    return tables


async def test_the_metadata_of_the_server(tables: Tables) -> None:
    async with connect(tables) as client:
        response = await client.get("/v2")
    extensions = ["binary_tensor_data", "classification", "model_configuration", "model_repository", "sequence"]
    extensions.append("statistics")
    assert response.json() == {"name": "octet", "version": __version__, "extensions": extensions}


async def test_live_and_ready(tables: Tables) -> None:
    async with connect(tables) as client:
        assert (await client.get("/v2/health/live")).json() == {"live": True}
        assert (await client.get("/v2/health/ready")).json() == {"ready": True}


async def test_a_server_that_shuts_down_is_live_but_not_ready(tables: Tables) -> None:
    async with connect(tables) as client:
        await client.plane.registry.close()  # type: ignore[attr-defined]
        assert (await client.get("/v2/health/live")).status_code == 200
        async with asyncio.timeout(GIVE_UP_S):
            # waits until the data plane has received it
            while (response := await client.get("/v2/health/ready")).status_code == 200:
                await asyncio.sleep(0.01)
    assert response.status_code == 503
    assert "shutting down" in response.json()["error"]


async def test_a_models_metadata(tables: Tables) -> None:
    tables.built("affine", tables.push("affine"), affine)
    async with connect(tables) as client:
        expected = {
            "name": "affine",
            "versions": ["1", "2"],
            "platform": "octet_plan",
            "inputs": [
                {"name": "x", "datatype": "FP32", "shape": [1, 4]},
                {"name": "a", "datatype": "INT8", "shape": [1, 4]},
                {"name": "b", "datatype": "INT64", "shape": [1, 4]},
            ],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 4]}],
        }
        assert (await client.get("/v2/models/affine")).json() == expected
        assert (await client.get("/v2/models/affine/versions/1")).json() == expected


async def test_a_quantized_tensor_has_its_scale_and_zero_point(tables: Tables) -> None:
    given, made = (TensorSpec(name, "UINT8", (1, 4), Quantization(0.5, 128)) for name in "xy")
    signature = ModelSignature((given,), (made,))
    tables.model("quantized", lambda: FunctionRunner(signature, "__builtin_memcpy(y, x, count_x);"))
    async with connect(tables) as client:
        (described,) = (await client.get("/v2/models/quantized")).json()["outputs"]
    assert described["parameters"] == {"scale": 0.5, "zero_point": 128}


async def test_a_model_is_ready_if_the_next_request_need_not_load_it(tables: Tables) -> None:
    async with connect(tables) as client:
        assert (await client.get("/v2/models/digits/ready")).json() == {"name": "digits", "ready": True}
        assert (await client.get("/v2/models/digits/versions/1/ready")).status_code == 200
    assert len(tables.loads) == 1


@pytest.mark.parametrize("suffix", ["", "/ready"])
async def test_a_model_that_is_being_built_is_not_ready(tables: Tables, suffix: str) -> None:
    tables.build("new", tables.push("new"), BuildState.QUEUED)
    async with connect(tables) as client:
        response = await client.get(f"/v2/models/new{suffix}")
    assert response.status_code == 503
    assert "is being built" in response.json()["error"]
    assert "retry-after" in response.headers


@pytest.mark.parametrize(
    "path",
    ["cats", "cats/ready", "digits/versions/2", "digits/versions/2/ready", "digits/versions/x", "cats/versions/1"],
)
async def test_unknown_models_are_not_found(tables: Tables, path: str) -> None:
    async with connect(tables) as client:
        response = await client.get(f"/v2/models/{path}")
    assert response.status_code == 404
    assert response.json()["error"]
