"""The labels and the preprocessing of a model apply wherever pictures and classes are used."""

from __future__ import annotations

import struct
from io import BytesIO
from typing import Any

import httpx
import numpy as np
import pytest
from anyio import fail_after, sleep
from PIL import Image

from service.api.grpc import inference_pb2 as pb
from service.core.models.metadata import ModelMetadata, Resize
from tests.support.data_plane import DataPlane, as_json, channel, connect, packed
from tests.support.runners import identity
from tests.support.tables import Tables

pytestmark = pytest.mark.anyio
NAME = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name

METADATA = ModelMetadata(("zero", "one", "two", "three"), (0.5,), (0.25,), Resize.CROP)
PIXELS = np.arange(12, dtype=np.uint8).reshape(1, 2, 2, 3) * 20
NORMALIZED = ((PIXELS / np.float32(255) - np.float32(0.5)) / np.float32(0.25)).reshape(-1)
PNG = BytesIO()
Image.fromarray(PIXELS[0]).save(PNG, "PNG")


@pytest.fixture
def tables() -> Tables:
    tables = Tables()
    tables.model("image", lambda: identity("FP32", 1, 2, 2, 3))
    tables.model("classes", lambda: identity("INT8", 1, 4))
    tables.metadata_by_version = {(name, 1): METADATA for name in ("image", "classes")}
    return tables


def data(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()["outputs"][0]["data"]


async def test_a_raw_picture_is_normalized(tables: Tables) -> None:
    async with connect(tables) as client:
        headers = {"Content-Type": "image/png"}
        answer = await client.post("/v2/models/image/infer", content=PNG.getvalue(), headers=headers)
    np.testing.assert_allclose(data(answer), NORMALIZED, rtol=1e-6)


async def test_a_picture_as_a_bytes_tensor_is_normalized(tables: Tables) -> None:
    blob = struct.pack("<I", len(PNG.getvalue())) + PNG.getvalue()
    entry = {"name": "x", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(blob)}}
    body, headers = packed({"inputs": [entry]}, blob)
    async with connect(tables) as client:
        answer = await client.post("/v2/models/image/infer", content=body, headers=headers)
    np.testing.assert_allclose(data(answer), NORMALIZED, rtol=1e-6)


async def test_a_picture_over_grpc_is_normalized(tables: Tables) -> None:
    message = pb.ModelInferRequest(model_name="image")
    message.inputs.add(name="x", datatype="BYTES", shape=[1]).contents.bytes_contents.append(PNG.getvalue())
    async with channel(DataPlane(tables)) as opened:
        sent = message.SerializeToString()
        answer = pb.ModelInferResponse.FromString(await opened.unary_unary(f"/{NAME}/ModelInfer")(sent))
    np.testing.assert_allclose(np.frombuffer(answer.raw_output_contents[0], "<f4"), NORMALIZED, rtol=1e-6)


async def test_a_tensor_is_not_normalized(tables: Tables) -> None:
    given = PIXELS.astype(np.float32)
    async with connect(tables) as client:
        answer = await client.post("/v2/models/image/infer", json=as_json(given))
    assert data(answer) == given.reshape(-1).tolist()


async def test_classes_have_their_labels(tables: Tables) -> None:
    request = as_json(np.array([[3, 1, 9, 4]], np.int8))
    request["outputs"] = [{"name": "y", "parameters": {"classification": 2}}]
    async with connect(tables) as client:
        answer = await client.post("/v2/models/classes/infer", json=request)
        tables.metadata_by_version["classes", 1] = ModelMetadata(("too", "few"))
        assert data(answer) == ["9:2:two", "4:3:three"]
        with fail_after(20):  # metadata that is set during a load soon takes effect
            while data(await client.post("/v2/models/classes/infer", json=request)) != ["9:2", "4:3"]:
                await sleep(0.02)


async def test_the_models_metadata_contains_them(tables: Tables) -> None:
    async with connect(tables) as client:
        described = (await client.get("/v2/models/classes")).json()
    assert described["parameters"] == {
        "labels": ["zero", "one", "two", "three"],
        "mean": [0.5],
        "std": [0.25],
        "resize": "crop",
    }


async def test_metadata_in_the_file_applies_unless_it_was_overridden(tables: Tables) -> None:
    build = tables.model("other", lambda: identity("INT8", 1, 4))
    assert build.artifact is not None
    tables.files_say[build.artifact] = ModelMetadata(("a", "b", "c", "d"), (0.1,))
    tables.metadata_by_version["other", 1] = ModelMetadata(("w", "x", "y", "z"))
    async with connect(tables) as client:
        described = (await client.get("/v2/models/other")).json()["parameters"]
    assert described == {"labels": ["w", "x", "y", "z"], "mean": [0.1]}
