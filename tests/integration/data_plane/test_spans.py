"""Spans by task: the data plane returns the positions of the tokens, and the control plane finds the spans."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc.aio as triton_grpc

from service.core.models.task import Activation, Task
from tests.support.data_plane import DataPlane, connect
from tests.support.predictions import predictions_of, text_metadata, text_tables
from tests.support.runners import tagger
from tests.support.tables import Tables

pytestmark = pytest.mark.anyio

PREDICT = "/api/v1/models/tagger/predict"
# by `id % 4`: the and jump are O, quick and ##s begin an animal, brown and ##ed continue one, fox and over are places
LABELS = ("O", "B-ANIMAL", "I-ANIMAL", "PLACE")
SCORE = math.exp(3) / (math.exp(3) + 3)


@pytest.fixture
def tables() -> Tables:
    tables = text_tables()
    tables.model("tagger", tagger)
    tables.metadata_by_version["tagger", 1] = text_metadata(Task.CLASSIFY_TOKENS, Activation.SOFTMAX, LABELS)
    return tables


def request(text: str) -> dict[str, Any]:
    inputs = [{"name": "text", "datatype": "BYTES", "shape": [1], "data": [text]}]
    return {"parameters": {"token_offsets": True}, "inputs": inputs}


async def test_a_text_has_spans(tables: Tables) -> None:
    async with predictions_of(tables) as client:
        response = await client.post(PREDICT, json={"text": "The Quick brown fox"})
    assert response.status_code == 200, response.text
    assert response.json() == {
        "spans": [
            {"label": "ANIMAL", "score": pytest.approx(SCORE), "start": 4, "end": 15, "text": "Quick brown"},
            {"label": "PLACE", "score": pytest.approx(SCORE), "start": 16, "end": 19, "text": "fox"},
        ]
    }


async def test_positions_are_characters_of_the_text(tables: Tables) -> None:
    async with predictions_of(tables) as client:
        response = await client.post(PREDICT, json={"text": ["the 🦊 fox", " fox", "the"]})
    first, second, third = response.json()["results"]
    assert [(each["start"], each["end"], each["text"]) for each in first["spans"] if each["text"] == "fox"] == [
        (6, 9, "fox")
    ]
    assert [(each["start"], each["end"]) for each in second["spans"]] == [(1, 4)]
    assert third == {"spans": []}


async def test_a_truncated_text_is_reported(tables: Tables) -> None:
    async with predictions_of(tables) as client:
        response = await client.post(PREDICT, json={"text": "fox the " * 10})
    found = response.json()
    assert found["truncated"] is True
    assert [each["start"] for each in found["spans"]] == [0, 8, 16, 24, 32]


async def test_a_pair_has_no_spans(tables: Tables) -> None:
    async with predictions_of(tables) as client:
        response = await client.post(PREDICT, json={"text": "fox", "text_pair": "fox"})
    assert response.status_code == 400
    assert "need the text itself" in response.json()["detail"]


async def test_positions_over_http(tables: Tables) -> None:
    async with connect(tables) as client:
        response = await client.post("/v2/models/tagger/infer", json=request("the é"))
    assert response.json()["parameters"] == {"tokens": 4, "truncated": 0, "token_offsets": "-1,-1,0,3,4,5,-1,-1"}


async def test_positions_over_grpc(tables: Tables) -> None:
    plane = DataPlane(tables)
    text = triton_grpc.InferInput("text", [1], "BYTES")
    text.set_data_from_numpy(np.array(["the é"], np.object_))
    async with plane.lifespan(), triton_grpc.InferenceServerClient(plane.grpc) as client:
        result = await client.infer("tagger", [text], parameters={"token_offsets": True})
    parameters = result.get_response().parameters
    assert parameters["token_offsets"].string_param == "-1,-1,0,3,4,5,-1,-1"
