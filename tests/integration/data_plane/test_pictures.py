"""A JPEG or PNG is the input of an image model: as a BYTES tensor, or as the whole body."""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from tests.support.data_plane import connect, packed, unpacked
from tests.support.pictures import large_png
from tests.support.runners import affine, digits, identity
from tests.support.tables import Tables

pytestmark = pytest.mark.anyio

INFER = "/v2/models/digits/infer"
PIXELS = (np.arange(64, dtype=np.uint8) * 4).reshape(8, 8)
RAW = {"Inference-Header-Content-Length": "0"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
BINARY = {"Content-Type": "application/octet-stream"}


def encode(format: str, picture: Image.Image | None = None, **options: Any) -> bytes:
    file = BytesIO()
    (picture or Image.fromarray(PIXELS)).save(file, format, **options)
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
    """Returns a request with one BYTES element. Its length prefix may be wrong."""
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


async def test_the_whole_body_by_content_type(tables: Tables) -> None:
    types = [("PNG", "image/png"), ("PNG", "image/x-png"), ("JPEG", "image/jpeg; q=1"), ("JPEG", "image/jpg")]
    types += [("WEBP", "image/webp"), ("BMP", "image/bmp"), ("BMP", "image/x-ms-bmp"), ("GIF", "IMAGE/GIF")]
    async with connect(tables) as client:
        for format, media_type in types:
            data = encode(format)
            expected = np.asarray(Image.open(BytesIO(data)).convert("L")).sum(axis=0).tolist()
            response = await client.post(INFER, content=data, headers={"Content-Type": media_type})
            assert columns(response) == expected, media_type


async def test_a_form_with_one_file(tables: Tables) -> None:
    """`curl -F file=@picture.png` sends such a form. The type of its part is guessed from the file's name."""
    async with connect(tables) as client:
        for name, media_type in (("a.png", "image/png"), ("a.webp", "application/octet-stream"), ("a", None)):
            data = encode("WEBP", None, lossless=True) if name == "a.webp" else PNG
            response = await client.post(INFER, files={"file": (name, data, media_type)})
            assert columns(response) == COLUMNS
        response = await client.post(INFER, files={"file": ("tensor", PIXELS.tobytes())})
        assert columns(response) == COLUMNS


@pytest.mark.parametrize(
    ("body", "boundary", "error"),
    [
        (b"", "b", "does not contain its boundary"),
        (b"--b--\r\n", "b", "has no file"),
        (b"--b\r\n\r\nx", "b", "ends too early"),
        (b"--b\r\n\r\nx\r\n--b\r\n\r\ny\r\n--b--\r\n", "b", "has more than one part"),
        (b"--b\r\n\r\nx\r\n--b--\r\n", "", "has no valid boundary"),
        (b"--b\r\n\r\nx\r\n--b--\r\n", "b" * 71, "has no valid boundary"),
        (b"--b\r\n\r\n\r\n--b--\r\n", '"b"', "the body has 0 bytes"),
        (b"--b\r\n\r\n--b--\r\n", "b", "the body has 0 bytes"),
        (b"--b\r\nContent-Type: image/svg+xml\r\n\r\nx\r\n--b--\r\n", "b", "pictures of type 'image/svg+xml'"),
    ],
)
async def test_forms_that_are_refused(tables: Tables, body: bytes, boundary: str, error: str) -> None:
    async with connect(tables) as client:
        headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        response = await client.post(INFER, content=body, headers=headers)
    assert response.status_code in (400, 415)
    assert error in response.json()["error"]


async def test_a_raw_tensor(tables: Tables) -> None:
    async with connect(tables) as client:
        assert columns(await client.post(INFER, content=PIXELS.tobytes(), headers=RAW)) == COLUMNS


async def test_a_raw_request_may_request_a_binary_response(tables: Tables) -> None:
    headers = {**RAW, "Accept": "application/octet-stream"}
    async with connect(tables) as client:
        document, arrays = unpacked(await client.post(INFER, content=PNG, headers=headers))
    assert document["model_name"] == "digits"
    assert arrays["columns"][0].tolist() == COLUMNS


async def test_an_ambiguous_body_is_rejected_without_a_content_type() -> None:
    size = 200
    picture = Image.new("L", (size, 1), 7)
    data = encode("PNG", picture).ljust(size, b"\0")  # bytes after the end of a PNG are ignored
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
        ("digits", b"", RAW, 400, "the body has 0 bytes; input 'image' takes 64 or a JPEG, PNG, WebP, BMP or GIF"),
        (
            "digits",
            bytes(65),
            RAW,
            400,
            "the body has 65 bytes; input 'image' takes 64 or a JPEG, PNG, WebP, BMP or GIF",
        ),
        ("numbers", bytes(5), RAW, 400, "the body has 5 bytes; input 'x' takes 4"),
        ("numbers", PNG, RAW, 400, "bytes; input 'x' takes 4"),
        ("numbers", PNG, {"Content-Type": "image/png"}, 400, "input 'x' does not take a picture"),
        ("affine", bytes(16), RAW, 400, "a raw body is one input, and the model takes 3"),
        ("digits", PNG[:45], RAW, 400, "the picture for input 'image' is damaged"),
        ("digits", PNG, {"Content-Type": "image/avif"}, 415, "pictures of type 'image/avif'"),
        ("digits", encode("TIFF"), {"Content-Type": "image/png"}, 415, "not a picture in a supported format"),
        ("digits", bytes(64), {"Content-Type": "image/png"}, 415, "not a picture in a supported format"),
        ("digits", PNG, {}, 415, "the body is a PNG, but the header Content-Type is missing"),
        ("digits", encode("WEBP"), FORM, 415, "is a WebP, but its Content-Type is 'application/"),
        ("digits", PIXELS.tobytes(), BINARY, 400, "the header Inference-Header-Content-Length is missing"),
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
async def test_bytes_tensors_that_are_not_a_picture(
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


async def test_bytes_for_an_input_that_is_not_an_image(tables: Tables) -> None:
    entry = {"name": "x", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 8}}
    body, headers = packed({"inputs": [entry]}, bytes(8))
    async with connect(tables) as client:
        response = await client.post("/v2/models/numbers/infer", content=body, headers=headers)
    assert "is sent as 'BYTES', but the model takes INT8" in response.json()["error"]


LARGE = large_png()


@asynccontextmanager
async def from_address(client: httpx.AsyncClient, address: str) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.AsyncHTTPTransport(local_address=address, limits=httpx.Limits(max_connections=None))
    async with httpx.AsyncClient(base_url=client.base_url, transport=transport, timeout=120) as other:
        yield other


@asynccontextmanager
async def flood(client: httpx.AsyncClient, count: int) -> AsyncIterator[list[asyncio.Task[httpx.Response]]]:
    """Sends large pictures from a separate address, and cancels the requests at the end."""
    async with from_address(client, "127.0.0.9") as greedy:
        tasks = [asyncio.create_task(greedy.post(INFER, content=LARGE, headers=RAW)) for _ in range(count)]
        try:
            yield tasks
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_client_with_many_large_pictures_is_refused_and_delays_no_other(tables: Tables) -> None:
    async with connect(tables, scheduling={"queue_size": 64}) as client, flood(client, 40) as tasks:
        refused, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        response = refused.pop().result()
        assert (response.status_code, response.headers["Retry-After"]) == (429, "1")
        assert "too many pictures of this client wait to be decoded" in response.json()["error"]
        assert columns(await client.post(INFER, content=PNG, headers=RAW)) == COLUMNS
        assert not all(task.done() for task in tasks)  # some pictures wait longer than the other client


async def test_pictures_of_a_client_that_left_are_not_decoded(tables: Tables) -> None:
    async with connect(tables) as client:
        async with flood(client, 3) as tasks:
            await asyncio.wait(tasks, timeout=0.1)
        # this picture is processed only after the earlier pictures
        response = await client.post(INFER, content=LARGE, headers=RAW)
        assert response.status_code == 200


async def test_a_deadline_may_pass_while_the_picture_is_decoded(tables: Tables) -> None:
    async with connect(tables) as client:
        response = await client.post(INFER, content=LARGE, headers={**RAW, "octet-timeout-ms": "20"})
        assert (response.status_code, response.json()["code"]) == (504, "deadline_passed")
        assert columns(await client.post(INFER, content=PNG, headers=RAW)) == COLUMNS


async def test_a_picture_that_exceeds_the_limit_is_rejected(tables: Tables) -> None:
    async with connect(tables) as client:
        response = await client.post(INFER, content=encode("PNG", Image.new("1", (1 << 15, 1 << 15))), headers=RAW)
        assert response.status_code == 413


async def test_a_file_with_two_sizes_is_damaged(tables: Tables) -> None:
    second = PNG[8:33]  # a second header, whose size the decoder uses
    data = bytearray(PNG[:33] + second + PNG[33:])
    data[16:24] = struct.pack(">II", 1, 1)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    async with connect(tables) as client:
        response = await client.post(INFER, content=bytes(data), headers=RAW)
        assert response.status_code == 400
        assert "two sizes" in response.json()["error"]
