"""Sounds (WAV) and tables (CSV) are the inputs of models: as the whole body, as a form, or as a BYTES tensor."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from typing import Any

import httpx
import numpy as np
import pytest

from service.core.models.metadata import ModelMetadata
from tests.support.data_plane import DataPlane, client_of, connect, packed
from tests.support.runners import affine, identity
from tests.support.sounds import wav
from tests.support.tables import Tables

pytestmark = pytest.mark.anyio

SOUND = wav(np.array([0.5, -0.5, 0.25]))
WAVEFORM = [0.5, -0.5, 0.25, 0.0, 0.0]


@pytest.fixture
def tables() -> Tables:
    tables = Tables()
    tables.model("sound", lambda: identity("FP32", 1, 5))
    tables.metadata_by_version["sound", 1] = ModelMetadata(sampling_rate=16_000)
    tables.model("rows", lambda: identity("FP32", 1, 2))
    tables.metadata_by_version["rows", 1] = ModelMetadata(columns=("a", "b"))
    tables.model("affine", affine)
    return tables


def data_of(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()["outputs"][0]["data"]


@pytest.mark.parametrize("media_type", ["audio/wav", "audio/x-wav", "audio/wave", "AUDIO/WAV; rate=16000"])
async def test_a_sound_as_the_body(tables: Tables, media_type: str) -> None:
    async with connect(tables) as client:
        response = await client.post("/v2/models/sound/infer", content=SOUND, headers={"Content-Type": media_type})
    assert data_of(response) == WAVEFORM
    assert response.json()["parameters"] == {"sound_samples": 3, "truncated": 0}


async def test_a_truncated_sound_is_reported(tables: Tables) -> None:
    async with connect(tables) as client:
        response = await client.post(
            "/v2/models/sound/infer", content=wav(np.full(9, 0.5)), headers={"Inference-Header-Content-Length": "0"}
        )
    assert data_of(response) == [0.5] * 5
    assert response.json()["parameters"] == {"sound_samples": 9, "truncated": 1}


@pytest.mark.parametrize("media_type", ["audio/wav", "application/octet-stream"])
async def test_a_sound_in_a_form(tables: Tables, media_type: str) -> None:
    async with connect(tables) as client:
        response = await client.post("/v2/models/sound/infer", files={"file": ("a.wav", SOUND, media_type)})
    assert data_of(response) == WAVEFORM


async def test_a_sound_as_a_tensor_of_bytes(tables: Tables) -> None:
    blob = struct.pack("<I", len(SOUND)) + SOUND
    entry = {"name": "x", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(blob)}}
    body, headers = packed({"inputs": [entry]}, blob)
    async with connect(tables) as client:
        assert data_of(await client.post("/v2/models/sound/infer", content=body, headers=headers)) == WAVEFORM


@pytest.mark.parametrize(
    ("model", "content", "media_type", "status", "error"),
    [
        ("sound", SOUND, "audio/mpeg", 415, "sounds of type 'audio/mpeg' are not supported"),
        ("sound", SOUND, "", 415, "the body is a WAV, but its Content-Type is missing or wrong"),
        ("sound", SOUND[:-1], "audio/wav", 400, "declares 6 bytes of samples, but 5 follow"),
        ("rows", SOUND, "audio/wav", 400, "the model's sampling rate is missing"),
        ("affine", SOUND, "audio/wav", 400, "a raw body is one input, and the model takes 3"),
        ("rows", b"a,b\n1,x\n", "text/csv", 400, "row 1, column 'b': 'x' is not a number"),
        ("rows", b"a,c\n1,2\n", "text/csv", 400, "the table has no column 'b'"),
        ("rows", b"1,2\n3,4\n", "text/csv", 400, "more than 1 rows"),
        ("rows", b"", "text/csv", 400, "the table is empty"),
    ],
)
async def test_requests_that_are_refused(
    tables: Tables, model: str, content: bytes, media_type: str, status: int, error: str
) -> None:
    async with connect(tables) as client:
        headers = {"Content-Type": media_type} if media_type else {}
        response = await client.post(f"/v2/models/{model}/infer", content=content, headers=headers)
    assert response.status_code == status, response.text
    assert error in response.json()["error"]


@pytest.mark.parametrize("content", [b"a,b\n1,2.5\n", b"b;x;a\n2.5;9;1", b"1,2.5"])
async def test_a_table(tables: Tables, content: bytes) -> None:
    async with connect(tables) as client:
        response = await client.post("/v2/models/rows/infer", content=content, headers={"Content-Type": "text/csv"})
        assert data_of(response) == [1, 2.5]
        form = await client.post("/v2/models/rows/infer", files={"file": ("a.csv", content, "text/csv")})
        assert data_of(form) == [1, 2.5]


async def test_damaged_sounds_and_tables_cause_no_server_error(tables: Tables) -> None:
    choice, seen = random.Random(0), set()
    async with connect(tables) as client:
        for _ in range(150):
            model, content, media_type = choice.choice(
                [("sound", SOUND, "audio/wav"), ("rows", b'b,a\r\n1,"2.5"\r\n', "text/csv")]
            )
            data = bytearray(content)
            for _ in range(choice.randint(0, 3)):
                data[choice.randrange(len(data))] = choice.choice([0, 34, 44, 10, 255, choice.randrange(256)])
            data = data[: choice.choice([len(data), choice.randrange(len(data) + 1)])]
            headers = {"Content-Type": media_type}
            response = await client.post(f"/v2/models/{model}/infer", content=bytes(data), headers=headers)
            assert response.status_code < 500, (response.text, bytes(data))
            seen.add(response.status_code)
    assert {200, 400} <= seen


async def test_sounds_and_tables_of_a_client_are_limited(tables: Tables) -> None:
    plane = DataPlane(tables, scheduling={"queue_size": 400})

    async def never_answer(connection: socket.socket) -> None:
        with connection:
            while await asyncio.get_running_loop().sock_recv(connection, 1 << 16):
                pass

    plane.preprocess = never_answer
    async with client_of(plane) as client:
        for model, content, media_type, error in (
            ("sound", SOUND, "audio/wav", "too many sounds of this client wait to be decoded"),
            ("rows", b"1,2", "text/csv", "too many tables of this client wait to be read"),
        ):
            limits = httpx.Limits(max_connections=None)
            async with httpx.AsyncClient(base_url=client.base_url, limits=limits, timeout=60) as greedy:
                path, headers = f"/v2/models/{model}/infer", {"Content-Type": media_type}
                tasks = [asyncio.create_task(greedy.post(path, content=content, headers=headers)) for _ in range(200)]
                done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                response = done.pop().result()
                assert (response.status_code, response.json()["detail"]) == (429, error)
                assert waiting
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
