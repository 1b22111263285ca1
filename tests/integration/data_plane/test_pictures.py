"""A JPEG or PNG as the input of an image model: as a BYTES tensor, or as the whole body."""

from __future__ import annotations

import struct
from io import BytesIO
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from tests.support.data_plane import connect, packed, unpacked
from tests.support.runners import affine, digits, identity
from tests.support.tables import Tables

pytestmark = pytest.mark.anyio

INFER = "/v2/models/digits/infer"
PIXELS = (np.arange(64, dtype=np.uint8) * 4).reshape(8, 8)
RAW = {"Inference-Header-Content-Length": "0"}


def encode(format: str, picture: Image.Image | None = None) -> bytes:
    file = BytesIO()
    (picture or Image.fromarray(PIXELS)).save(file, format)
    return file.getvalue()


PNG = encode("PNG")
COLUMNS = PIXELS.sum(axis=0, dtype=np.int32).tolist()


@pytest.fixture
def tables() -> Tables:
    tables = Tables()
    tables.model("digits", digits)
    tables.model("affine", affine)
    tables.model("numbers", lambda: identity("INT8", 1, 4))
    return tables


def as_bytes(data: bytes, shape: Any = (1,), prefix: int | None = None) -> tuple[bytes, dict[str, str]]:
    """A request with one BYTES element, whose length prefix may lie."""
    blob = struct.pack("<I", len(data) if prefix is None else prefix) + data
    parameters = {"binary_data_size": len(blob)}
    entry = {"name": "image", "datatype": "BYTES", "shape": shape, "parameters": parameters}
    return packed({"inputs": [entry]}, blob)


def columns(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()["outputs"][0]["data"]


async def test_a_bytes_tensor(tables: Tables) -> None:
    body, headers = as_bytes(PNG)
    async with connect(tables) as client:
        assert columns(await client.post(INFER, content=body, headers=headers)) == COLUMNS


async def test_the_whole_body(tables: Tables) -> None:
    async with connect(tables) as client:
        assert columns(await client.post(INFER, content=PNG, headers=RAW)) == COLUMNS


@pytest.mark.parametrize(("format", "media_type"), [("PNG", "image/png"), ("JPEG", "image/jpeg; q=1")])
async def test_the_whole_body_by_its_content_type(tables: Tables, format: str, media_type: str) -> None:
    data = encode(format)
    expected = np.asarray(Image.open(BytesIO(data)).convert("L")).sum(axis=0).tolist()
    async with connect(tables) as client:
        response = await client.post(INFER, content=data, headers={"Content-Type": media_type})
    assert columns(response) == expected


async def test_a_raw_tensor(tables: Tables) -> None:
    async with connect(tables) as client:
        assert columns(await client.post(INFER, content=PIXELS.tobytes(), headers=RAW)) == COLUMNS


async def test_a_raw_request_may_want_a_binary_answer(tables: Tables) -> None:
    headers = {**RAW, "Accept": "application/octet-stream"}
    async with connect(tables) as client:
        document, arrays = unpacked(await client.post(INFER, content=PNG, headers=headers))
    assert document["model_name"] == "digits"
    assert arrays["columns"][0].tolist() == COLUMNS


async def test_a_body_that_may_be_either_is_refused_unless_its_type_is_given() -> None:
    size = 200
    picture = Image.new("L", (size, 1), 7)
    data = encode("PNG", picture).ljust(size, b"\0")  # what follows the end of a PNG does not matter
    assert len(data) == size
    tables = Tables()
    tables.model("both", lambda: identity("UINT8", 1, 1, size, 1))
    async with connect(tables) as client:
        url = "/v2/models/both/infer"
        refused = await client.post(url, content=data, headers=RAW)
        assert refused.status_code == 400
        assert "may be a picture" in refused.json()["error"]
        as_tensor = await client.post(url, content=data, headers={**RAW, "Content-Type": "application/octet-stream"})
        assert as_tensor.json()["outputs"][0]["data"] == list(data)
        as_picture = await client.post(url, content=data, headers={"Content-Type": "image/png"})
        assert as_picture.json()["outputs"][0]["data"] == np.asarray(picture)[0].tolist()


@pytest.mark.parametrize(
    ("model", "content", "headers", "status", "error"),
    [
        ("digits", b"", RAW, 400, "the body has 0 bytes; input 'image' takes 64 or a JPEG or PNG"),
        ("digits", bytes(65), RAW, 400, "the body has 65 bytes; input 'image' takes 64 or a JPEG or PNG"),
        ("numbers", bytes(5), RAW, 400, "the body has 5 bytes; input 'x' takes 4"),
        ("numbers", PNG, RAW, 400, "bytes; input 'x' takes 4"),
        ("numbers", PNG, {"Content-Type": "image/png"}, 400, "input 'x' does not take a picture"),
        ("affine", bytes(16), RAW, 400, "a raw body is one input, and the model takes 3"),
        ("digits", PNG[:45], RAW, 400, "the picture for input 'image' is damaged"),
        ("digits", PNG, {"Content-Type": "image/webp"}, 415, "pictures of type 'image/webp'"),
        ("digits", encode("GIF"), {"Content-Type": "image/png"}, 415, "neither a JPEG nor a PNG"),
        ("digits", bytes(64), {"Content-Type": "image/png"}, 415, "neither a JPEG nor a PNG"),
        ("digits", encode("PNG", Image.new("1", (1 << 15, 1 << 11))), RAW, 413, "32768 x 2048 pixels"),
    ],
)
async def test_raw_bodies_that_do_not_fit(
    tables: Tables, model: str, content: bytes, headers: dict[str, str], status: int, error: str
) -> None:
    async with connect(tables) as client:
        response = await client.post(f"/v2/models/{model}/infer", content=content, headers=headers)
    assert response.status_code == status
    assert error in response.json()["error"]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (as_bytes(PNG, prefix=len(PNG) - 1), "which are not one element"),
        (as_bytes(PNG, prefix=2**32 - 1), "which are not one element"),
        (as_bytes(PNG, shape=[2]), "it is one picture, of shape [1]"),
        (as_bytes(PNG, shape=[]), "it is one picture, of shape [1]"),
        (as_bytes(PNG, shape=[1, 8, 8, 1]), "it is one picture, of shape [1]"),
        (as_bytes(PNG[:-30]), "is damaged"),
    ],
)
async def test_bytes_tensors_that_are_no_picture(
    tables: Tables, request_: tuple[bytes, dict[str, str]], error: str
) -> None:
    body, headers = request_
    async with connect(tables) as client:
        response = await client.post(INFER, content=body, headers=headers)
    assert response.status_code == 400
    assert error in response.json()["error"]


async def test_a_bytes_tensor_too_short_for_its_length(tables: Tables) -> None:
    entry = {"name": "image", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 3}}
    body, headers = packed({"inputs": [entry]}, b"\0\0\0")
    async with connect(tables) as client:
        response = await client.post(INFER, content=body, headers=headers)
    assert "which are not one element" in response.json()["error"]


async def test_a_picture_in_json(tables: Tables) -> None:
    entry = {"name": "image", "datatype": "BYTES", "shape": [1], "data": ["iVBORw0KGgo="]}
    async with connect(tables) as client:
        response = await client.post(INFER, json={"inputs": [entry]})
    assert response.status_code == 400
    assert "binary_data_size" in response.json()["hint"]


async def test_bytes_for_an_input_that_is_no_image(tables: Tables) -> None:
    entry = {"name": "x", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 8}}
    body, headers = packed({"inputs": [entry]}, bytes(8))
    async with connect(tables) as client:
        response = await client.post("/v2/models/numbers/infer", content=body, headers=headers)
    assert "is sent as 'BYTES', but the model takes INT8" in response.json()["error"]
