"""`POST /v1/embeddings` at a router, which forwards it to the data plane of a worker."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.core.models.metadata import ModelMetadata
from service.core.models.signature import ModelSignature
from service.core.models.task import Task
from service.core.models.text import Pooling, Side, TextProcessing, TokenInput
from tests.support import runners
from tests.support.routed import Cluster, cluster
from tests.support.waiting import GIVE_UP_S

# The model returns its tokens, so a vector consists of the token ids. Of the six tokens, the last ones are padding.
TEXT = TextProcessing(inputs={"x": TokenInput.IDS}, pad_id=9)
METADATA = ModelMetadata(task=Task.EMBED, text=TEXT)


@pytest.fixture
def routed(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path) as made:
        yield made


def embed(routed: Cluster, given: Any, model: str = "ids", **members: Any) -> httpx.Response:
    body = json.dumps({"model": model, "input": given, **members}).encode()
    return httpx.post(f"{routed.url}/v1/embeddings", content=body, timeout=GIVE_UP_S)


def test_a_worker_embeds_the_tokens_of_each_text(routed: Cluster) -> None:
    worker = routed.worker({"ids": runners.identity("INT64", 1, 6)}, metadata=METADATA)
    routed.tell()
    answer = embed(routed, [[5, 4], [1, 2, 3, 4, 5, 6]])
    assert answer.status_code == 200, answer.text
    assert [each["embedding"] for each in answer.json()["data"]] == [[5, 4, 9, 9, 9, 9], [1, 2, 3, 4, 5, 6]]
    assert answer.json()["usage"] == {"prompt_tokens": 8, "total_tokens": 8}
    assert routed.forwards()[worker.id]["forwarded"] == 1


def test_a_compressed_request_is_forwarded_as_it_is(routed: Cluster) -> None:
    routed.worker({"ids": runners.identity("INT64", 1, 6)}, metadata=METADATA)
    routed.tell()
    body = gzip.compress(json.dumps({"model": "ids", "input": [5, 4]}).encode())
    headers = {"content-encoding": "gzip"}
    answer = httpx.post(f"{routed.url}/v1/embeddings", content=body, headers=headers, timeout=GIVE_UP_S)
    assert answer.json()["data"][0]["embedding"] == [5, 4, 9, 9, 9, 9]


def test_errors_of_the_router_and_of_the_worker_name_the_cause(routed: Cluster) -> None:
    routed.worker({"ids": runners.identity("INT64", 1, 6)}, metadata=METADATA)
    routed.tell()
    for given, status, detail in (([], 400, "'input' is empty"), ([1] * 7, 400, "the model takes 6 tokens, not 7")):
        answer = embed(routed, given)
        assert (answer.status_code, answer.json()["detail"]) == (status, detail)
    assert embed(routed, [1], model="absent").status_code == 404


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"input": [1]}', b'{"model": "ids"}'])
def test_a_malformed_body_is_refused_by_the_router(routed: Cluster, body: bytes) -> None:
    answer = httpx.post(f"{routed.url}/v1/embeddings", content=body, timeout=GIVE_UP_S)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")


def test_padding_on_the_left_and_several_poolings(routed: Cluster) -> None:
    """The output has one vector for each token: [1, 6, 1]."""
    text = TextProcessing(
        inputs={"x": TokenInput.IDS}, padding_side=Side.LEFT, pooling=(Pooling.CLS, Pooling.LAST, Pooling.MEAN)
    )
    signature = ModelSignature((runners.tensor("x", "INT64", 1, 6),), (runners.tensor("y", "FP32", 1, 6, 1),))
    copy = runners.FunctionRunner(signature, "for (int i = 0; i < 6; ++i) y[i] = (float)x[i];")
    routed.worker({"ids": copy}, metadata=ModelMetadata(task=Task.EMBED, text=text))
    routed.tell()
    assert embed(routed, [7, 2, 6]).json()["data"][0]["embedding"] == [7, 6, 5]


def test_a_value_that_is_not_finite_is_reported(routed: Cluster) -> None:
    signature = ModelSignature((runners.tensor("x", "INT64", 1, 2),), (runners.tensor("y", "FP32", 1, 2),))
    divide = runners.FunctionRunner(signature, "for (int i = 0; i < 2; ++i) y[i] = 1.0f / (float)x[i];")
    routed.worker({"ids": divide}, metadata=METADATA)
    routed.tell()
    answer = embed(routed, [[1, 1], [1, 0]])
    assert answer.status_code == 400
    assert answer.json()["detail"] == "input 1: the model's output 'y' contains a value that is not finite"
