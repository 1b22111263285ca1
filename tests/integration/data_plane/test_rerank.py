"""`POST /v1/rerank`: the control plane sends pairs to the data plane, which tokenizes them."""

from __future__ import annotations

import math
from typing import Any

import httpx
import pytest

from service.core.models.task import Activation, Task
from tests.support.predictions import predictions_of, text_metadata, text_tables
from tests.support.runners import encoder, reranker
from tests.support.tables import Tables

pytestmark = pytest.mark.anyio

DOCUMENTS = ["é", "the brown fox", "the quick fox jumps", "fox"]
SHARED = [0, 2, 3, 1]  # the number of words of each document that are in the query
LONG = "the quick brown fox jumps over the quick fox"


@pytest.fixture
def tables() -> Tables:
    tables = text_tables()
    for name, described in (
        ("reranker", text_metadata(Task.RERANK, Activation.SIGMOID)),
        ("raw", text_metadata(Task.RERANK, Activation.NONE)),
        ("classifier", text_metadata(Task.CLASSIFY, Activation.SIGMOID, ("relevant",))),
    ):
        tables.model(name, reranker)
        tables.metadata_by_version[name, 1] = described
    tables.model("many", encoder)
    tables.metadata_by_version["many", 1] = text_metadata(Task.RERANK, None)
    tables.model("embedder", encoder)
    tables.metadata_by_version["embedder", 1] = text_metadata(Task.EMBED, None)
    return tables


async def rerank(client: httpx.AsyncClient, **members: Any) -> dict[str, Any]:
    body = {"model": "reranker", "query": "the quick fox", "documents": DOCUMENTS, **members}
    response = await client.post("/v1/rerank", json=body)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def test_documents_are_ranked_by_their_scores(tables: Tables) -> None:
    async with predictions_of(tables) as client:
        found = await rerank(client)
    order = [2, 1, 3, 0]
    assert [each["index"] for each in found["results"]] == order
    assert [each["relevance_score"] for each in found["results"]] == pytest.approx(
        [1 / (1 + math.exp(2 - SHARED[index])) for index in order], rel=1e-12
    )
    lengths = [3 + 3 + each for each in (1, 3, 5, 1)]  # three special tokens and the query; "jumps" has two pieces
    assert found["usage"] == {"prompt_tokens": sum(lengths), "total_tokens": sum(lengths)}
    assert (found["model"], found["object"]) == ("reranker", "list")


async def test_documents_may_be_objects_and_come_back(tables: Tables) -> None:
    async with predictions_of(tables) as client:
        documents = [{"text": DOCUMENTS[0]}, DOCUMENTS[2]]
        found = await rerank(client, documents=documents, return_documents=True, top_n=1)
    ((best),) = found["results"]
    assert (best["index"], best["document"]) == (1, {"text": DOCUMENTS[2]})


async def test_equal_scores_keep_the_order_of_the_request(tables: Tables) -> None:
    async with predictions_of(tables) as client:
        found = await rerank(client, documents=["fox", "é", "fox", "fox"])
    assert [each["index"] for each in found["results"]] == [0, 2, 3, 1]


@pytest.mark.parametrize(("model", "score"), [("raw", 1.0), ("classifier", 1 / (1 + math.exp(-1)))])
async def test_the_activation_is_that_of_the_version(tables: Tables, model: str, score: float) -> None:
    async with predictions_of(tables) as client:
        found = await rerank(client, model=model, top_n=1)
    assert found["results"][0]["relevance_score"] == pytest.approx(score, rel=1e-12)


async def test_a_long_document_is_reported_as_truncated(tables: Tables) -> None:
    async with predictions_of(tables) as client:
        found = await rerank(client, documents=["fox", LONG])
    assert [each.get("truncated") for each in sorted(found["results"], key=lambda each: each["index"])] == [None, True]


@pytest.mark.parametrize(
    ("members", "status", "detail"),
    [
        ({"documents": []}, 400, "documents is empty"),
        ({"documents": ["a"] * 1025}, 413, "1025 samples"),
        ({"documents": [{"title": "a"}]}, 400, "documents"),
        ({"top_n": 0}, 400, "top_n"),
        ({"query": 7}, 400, "query"),
        ({"model": "absent"}, 404, "there is no model 'absent'"),
        ({"model": "embedder"}, 400, "does not compute one score"),
        ({"model": "many"}, 400, "an output of shape [1, 8] is not one score"),
    ],
)
async def test_errors_say_what_is_wrong(tables: Tables, members: dict[str, Any], status: int, detail: str) -> None:
    body = {"model": "reranker", "query": "fox", "documents": ["fox"], **members}
    async with predictions_of(tables) as client:
        response = await client.post("/v1/rerank", json=body)
    assert response.status_code == status, response.text
    assert detail in response.json()["detail"]


async def test_pairs_by_task(tables: Tables) -> None:
    path = "/api/v1/models/raw/predict"
    async with predictions_of(tables) as client:
        one = await client.post(path, json={"text": "the fox", "text_pair": "the fox"})
        several = await client.post(path, json={"text": ["fox", "é"], "text_pair": ["fox", "fox"]})
        table = await client.post(path, content="text,text_pair\nfox,fox\n", headers={"content-type": "text/csv"})
    assert one.json() == {"score": 0.0}
    assert several.json() == {"results": [{"score": -1.0}, {"score": -2.0}]}
    assert table.json() == {"results": [{"score": -1.0}]}
