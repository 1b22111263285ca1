"""A BYTES input `text` takes the place of the inputs of a model that has a tokenizer."""

from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc.aio as triton_grpc

from service.core.digest import digest_of
from service.core.models.metadata import ModelMetadata
from service.core.models.task import Task
from service.core.models.text import TextProcessing
from tests.support import runners
from tests.support.data_plane import DataPlane, client_of, connect, packed
from tests.support.runners import encoder
from tests.support.tables import Tables
from tests.support.tokenizers import wordpiece

pytestmark = pytest.mark.anyio

INFER = "/v2/models/encoder/infer"
FOX = [2, 4, 7, 3, 0, 0, 0, 0]
LONG = "the quick brown fox jumps over the quick fox"


@pytest.fixture
def tables() -> Tables:
    data = wordpiece().to_str().encode()
    path = runners.folder() / "tokenizer.json"
    path.write_bytes(data)
    tables = Tables()
    tables.tokenizers[digest_of(data)] = path
    for name, texts in (("encoder", 1), ("pair", 2)):
        tables.model(name, lambda texts=texts: encoder(texts))  # type: ignore[misc]
        text = TextProcessing(digest_of(data), len(data))
        tables.metadata_by_version[name, 1] = ModelMetadata(task=Task.EMBED, text=text)
    tables.model("tensors", encoder)
    return tables


def request(*texts: str, **members: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [len(texts)], "data": list(texts), **members}]}


def outputs(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    return {each["name"]: each["data"] for each in response.json()["outputs"]}


async def test_a_text_as_json(tables: Tables) -> None:
    async with connect(tables) as client:
        response = await client.post(INFER, json=request("The fox"))
    assert outputs(response) == {"ids": FOX, "mask": [1, 1, 1, 1, 0, 0, 0, 0], "types": [0] * 8}
    assert response.json()["parameters"] == {"tokens": 4, "truncated": 0}


async def test_a_text_as_binary_data(tables: Tables) -> None:
    blob = struct.pack("<I", 7) + b"the fox"
    entry = {"name": "text", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(blob)}}
    body, headers = packed({"inputs": [entry]}, blob)
    async with connect(tables) as client:
        assert outputs(await client.post(INFER, content=body, headers=headers))["ids"] == FOX


async def test_several_texts_in_one_call(tables: Tables) -> None:
    async with connect(tables) as client:
        response = await client.post("/v2/models/pair/infer", json=request("the fox", LONG))
    assert outputs(response)["ids"] == [*FOX, 2, 4, 5, 6, 7, 8, 9, 3]
    assert response.json()["parameters"] == {"tokens": 12, "truncated": 1}


PAIR_IDS, PAIR_TYPES = [2, 4, 7, 3, 12, 3, 0, 0], [0, 0, 0, 0, 1, 1, 0, 0]


def pair_request(first: list[str], second: list[str]) -> dict[str, Any]:
    inputs = [
        {"name": name, "datatype": "BYTES", "shape": [len(texts)], "data": texts}
        for name, texts in (("text", first), ("text_pair", second))
    ]
    return {"inputs": inputs}


@pytest.mark.parametrize("is_reversed", [False, True])
async def test_a_pair_as_json(tables: Tables, is_reversed: bool) -> None:
    body = pair_request(["the fox"], ["é"])
    if is_reversed:
        body["inputs"].reverse()
    async with connect(tables) as client:
        response = await client.post(INFER, json=body)
    assert outputs(response) == {"ids": PAIR_IDS, "mask": [1, 1, 1, 1, 1, 1, 0, 0], "types": PAIR_TYPES}
    assert response.json()["parameters"] == {"tokens": 6, "truncated": 0}


@pytest.mark.parametrize("is_reversed", [False, True])
async def test_pairs_as_binary_data(tables: Tables, is_reversed: bool) -> None:
    blobs = {
        "text": struct.pack("<I", 7) + b"the fox" + struct.pack("<I", 3) + b"fox",
        "text_pair": struct.pack("<I", 2) + "é".encode() + struct.pack("<I", 0),
    }
    names = list(blobs)[:: -1 if is_reversed else 1]
    inputs = [
        {"name": name, "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": len(blobs[name])}}
        for name in names
    ]
    body, headers = packed({"inputs": inputs}, b"".join(blobs[name] for name in names))
    async with connect(tables) as client:
        found = outputs(await client.post("/v2/models/pair/infer", content=body, headers=headers))
    assert found["ids"] == [*PAIR_IDS, 2, 7, 3, 3, 0, 0, 0, 0]
    assert found["types"] == [*PAIR_TYPES, 0, 0, 0, 1, 0, 0, 0, 0]


async def test_a_pair_over_grpc(tables: Tables) -> None:
    plane, inputs = DataPlane(tables), []
    for name, text in (("text", "the fox"), ("text_pair", "é")):
        inputs.append(triton_grpc.InferInput(name, [1], "BYTES"))
        inputs[-1].set_data_from_numpy(np.array([text], np.object_))
    async with plane.lifespan(), triton_grpc.InferenceServerClient(plane.grpc) as client:
        result = await client.infer("encoder", inputs)
    assert (result.as_numpy("ids").tolist(), result.as_numpy("types").tolist()) == ([PAIR_IDS], [PAIR_TYPES])


async def test_a_text_over_grpc(tables: Tables) -> None:
    plane = DataPlane(tables)
    text = triton_grpc.InferInput("text", [1], "BYTES")
    text.set_data_from_numpy(np.array(["the fox"], np.object_))
    async with plane.lifespan(), triton_grpc.InferenceServerClient(plane.grpc) as client:
        result = await client.infer("encoder", [text])
    assert result.as_numpy("ids").tolist() == [FOX]
    parameters = result.get_response().parameters
    assert (parameters["tokens"].int64_param, parameters["truncated"].int64_param) == (4, 0)


@pytest.mark.parametrize(
    ("model", "body", "status", "error"),
    [
        ("encoder", request("a", "b"), 400, "the request has 2 texts, but the model takes 1 at a time"),
        ("encoder", request("a", shape=[2]), 400, "has 1 texts, but its shape is [2]"),
        ("encoder", request("a", data=[1]), 400, "contains an element that is not a string"),
        ("encoder", request(), 400, "input 'text' has shape [0]"),
        ("encoder", request("a", shape=[1, 2]), 400, "input 'text' has shape [1, 2]"),
        ("encoder", request("a", datatype="INT64", data=[1]), 400, "the model has no input 'text'"),
        ("tensors", request("a"), 400, "the model has no input 'text'"),
        ("encoder", request("x" * ((1 << 20) + 1)), 413, "text 0 has 1048577 bytes"),
        ("pair", pair_request(["a", "b"], ["c"]), 400, "input 'text_pair' has shape [1]"),
        ("pair", {"inputs": request("a")["inputs"] * 2}, 400, "input 'text' is given twice"),
        ("pair", {"inputs": pair_request([], ["c"])["inputs"][1:]}, 400, "input 'text' is missing"),
        ("encoder", pair_request(["a"], [1]), 400, "input 'text_pair' contains an element that is not a string"),  # type: ignore[list-item]
        ("encoder", pair_request(["a"], ["x" * ((1 << 20) + 1)]), 413, "text_pair 0 has 1048577 bytes"),
    ],
)
async def test_requests_that_are_refused(tables: Tables, model: str, body: Any, status: int, error: str) -> None:
    async with connect(tables) as client:
        response = await client.post(f"/v2/models/{model}/infer", json=body)
    assert response.status_code == status, response.text
    assert error in response.json()["error"]


async def test_a_text_that_is_not_utf_8_is_refused(tables: Tables) -> None:
    blob = struct.pack("<I", 2) + b"a\xff"
    entry = {"name": "text", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(blob)}}
    body, headers = packed({"inputs": [entry]}, blob)
    async with connect(tables) as client:
        response = await client.post(INFER, content=body, headers=headers)
    assert response.status_code == 400
    assert "text 0 is not UTF-8 at byte 1" in response.json()["error"]


async def test_a_model_with_a_tokenizer_still_takes_tensors(tables: Tables) -> None:
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [{"name": name, "datatype": "INT64", "shape": [1, 8], "data": FOX} for name in names]
    async with connect(tables) as client:
        response = await client.post(INFER, json={"inputs": inputs})
    assert outputs(response)["ids"] == FOX
    assert "parameters" not in response.json()


async def test_a_damaged_tokenizer_is_an_error_of_the_request(tables: Tables) -> None:
    (path,) = tables.tokenizers.values()
    path.write_bytes(path.read_bytes()[:-1])
    async with connect(tables) as client:
        response = await client.post(INFER, json=request("fox"))
        assert response.status_code == 400
        assert "the file of the model's tokenizer is damaged" in response.json()["error"]


async def test_the_data_plane_needs_no_right_to_open_the_tokenizer(tables: Tables, tmp_path: Path) -> None:
    ((digest, path),) = tables.tokenizers.items()
    (tmp_path / "tokenizer.json").write_bytes(path.read_bytes())
    tables.tokenizers[digest] = tmp_path / "tokenizer.json"
    async with connect(tables) as client:
        assert outputs(await client.post(INFER, json=request("the fox")))["ids"] == FOX


async def test_a_model_whose_tokenizer_cannot_be_opened_takes_tensors_only(tables: Tables, tmp_path: Path) -> None:
    (digest,) = tables.tokenizers
    tables.tokenizers[digest] = tmp_path / "missing"
    async with connect(tables) as client:
        response = await client.post(INFER, json=request("the fox"))
    assert "the model has no input 'text'" in response.json()["error"]


async def test_a_tokenizer_that_ends_two_processes_is_refused(tables: Tables) -> None:
    plane, questions = DataPlane(tables), 0

    async def die(connection: socket.socket) -> None:
        """Ends the connection when a question arrives."""
        nonlocal questions
        with connection:
            await asyncio.get_running_loop().sock_recv(connection, 1)
        questions += 1

    plane.preprocess = die
    async with client_of(plane) as client:
        response = await client.post(INFER, json=request("fox"))
        assert (response.status_code, response.json()["code"]) == (503, "restarting")
        assert questions == 2
        response = await client.post(INFER, json=request("fox"))
        assert (response.status_code, response.json()["code"]) == (503, "not_ready")
        assert "ended while it used this tokenizer" in response.json()["error"]
        assert questions == 2
