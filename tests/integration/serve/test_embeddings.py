"""Embeddings, as clients of OpenAI's API request them, of a small encoder with dynamic quantization."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.core.models.arrays import Array
from service.core.models.metadata import ModelMetadata
from service.core.models.task import Task
from service.core.models.text import TextProcessing, parse_pooling
from service.runtime.results import result_of
from tests.support.serving import Served, serving
from tests.support.tokenizers import wordpiece
from tests.support.waiting import eventually

SOURCE = Path(__file__).parents[2] / "fixtures" / "lengths" / "bert.dynamic.onnx"
WIDTH = 16
TEXT = {"pooling": "mean", "normalize": True, "prompts": {"query": "the "}, "default_prompt": ""}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("embeddings")) as served:
        params = {"name": "bert", "input_shape": "input_ids=1x[4,8];attention_mask=1x[4,8]"}
        pushed = served.client.put("/api/v1/models", params=params, content=SOURCE.read_bytes())
        assert pushed.is_success, pushed.text
        builds = served.client.get("/api/v1/builds", params={"model": "bert"}).json()["builds"]
        assert {served.ended(each["id"])["state"] for each in builds} == {"succeeded"}
        version = "/api/v1/models/bert/versions/1"
        assert served.client.put(f"{version}/tokenizer", content=wordpiece().to_str().encode()).is_success
        describe(served, {"task": "embed", "text": TEXT})
        yield served
        assert served.stop() == 0


def embed(server: Served, **members: Any) -> dict[str, Any]:
    response = server.client.post("/v1/embeddings", json={"model": "bert", **members})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def vectors(answer: dict[str, Any]) -> Array:
    assert [each["index"] for each in answer["data"]] == list(range(len(answer["data"])))
    return np.array([each["embedding"] for each in answer["data"]], np.float32)


def test_each_text_has_a_normalized_vector(server: Served) -> None:
    answer = embed(server, input=["the quick fox", "the fox"])
    found = vectors(answer)
    assert (found.shape, answer["object"], answer["model"]) == ((2, WIDTH), "list", "bert")
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    assert answer["usage"] == {"prompt_tokens": 5 + 4, "total_tokens": 5 + 4}


def test_an_answer_does_not_depend_on_its_neighbours(server: Served) -> None:
    """Each text is computed at its own length, although the scales of the layers depend on all of its tokens."""
    texts = ["the fox", "the quick brown fox jumps", "fox", "the fox"]
    together = vectors(embed(server, input=texts))
    alone = [vectors(embed(server, input=each))[0] for each in texts]
    np.testing.assert_array_equal(together, np.stack(alone))


def test_token_ids_give_the_vector_of_their_text(server: Served) -> None:
    (expected,) = vectors(embed(server, input="the fox"))
    ids = wordpiece().encode("the fox").ids
    for given in (ids, [ids]):
        answer = embed(server, input=given)
        np.testing.assert_array_equal(vectors(answer)[0], expected)
        assert answer["usage"]["prompt_tokens"] == len(ids)


def test_a_vector_may_be_base64_and_shorter(server: Served) -> None:
    (whole,) = vectors(embed(server, input="the fox"))
    (encoded,) = embed(server, input="the fox", encoding_format="base64")["data"]
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(encoded["embedding"]), "<f4"), whole)
    (short,) = vectors(embed(server, input="the fox", dimensions=4))
    np.testing.assert_allclose(short, whole[:4] / np.linalg.norm(whole[:4]), atol=1e-6)


def test_a_named_prompt_is_put_before_the_text(server: Served) -> None:
    (expected,) = vectors(embed(server, input="the fox"))
    np.testing.assert_array_equal(vectors(embed(server, input="fox", prompt_name="query"))[0], expected)


def test_models_are_listed(server: Served) -> None:
    (model,) = server.client.get("/v1/models").json()["data"]
    assert (model["id"], model["object"]) == ("bert", "model")


@pytest.mark.parametrize(
    ("members", "status", "detail"),
    [
        ({"input": []}, 400, "'input' is empty"),
        ({"input": [[]]}, 400, "an empty list of token ids"),
        ({"input": ["fox", []]}, 400, "an empty list of token ids"),
        ({"input": 7}, 400, "'input' is 7"),
        ({"input": [1, "fox"]}, 400, "not a token id"),
        ({"input": [1.5]}, 400, "1.5"),
        ({"input": ["fox", 1]}, 400, "not a text"),
        ({"input": None}, 400, "'input' is null"),
        ({"input": ["fox"] * 1025}, 413, "more than 1024 texts"),
        ({"input": "fox", "dimensions": WIDTH + 1}, 400, "vectors have 16 numbers"),
        ({"input": "fox", "dimensions": 0}, 400, "'dimensions' is 0"),
        ({"input": "fox", "dimensions": "4"}, 400, "'dimensions' is"),
        ({"input": "fox", "encoding_format": "int8"}, 400, "'encoding_format' is 'int8'"),
        ({"input": "fox", "dimension": 4}, 400, "the unknown member 'dimension'"),
        ({"input": "fox", "model": 3}, 400, "'model' is 3"),
        ({"input": "fox", "model": "absent"}, 404, "there is no model 'absent'"),
        ({"input": "fox", "model": "bert/versions/1"}, 404, "there is no model"),
        ({"input": "fox", "prompt_name": "other"}, 400, "no prompt 'other'"),
        ({"input": [1, 2], "prompt_name": "query"}, 400, "token ids cannot have a prompt"),
        ({"input": [[1] * 9]}, 400, "[1, 9]"),
        ({"input": [[1], [1] * 9]}, 400, "input 1: "),
    ],
)
def test_errors_say_what_is_wrong(server: Served, members: dict[str, Any], status: int, detail: str) -> None:
    response = server.client.post("/v1/embeddings", json={"model": "bert", **members})
    assert response.status_code == status, response.text
    assert detail in response.json()["detail"]


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "it ends too early"),
        (b"[]", "not a JSON object"),
        (b'{"input": "fox"}', "'model' is missing"),
        (b'{"model": "bert"}', "'input' is missing"),
        (b'{"model": "bert", "input": "\xff"}', "not UTF-8"),
        (b'{"model": "bert", "input": "fox"} x', "unexpected text after the end"),
    ],
)
def test_a_malformed_body_is_refused(server: Served, body: bytes, detail: str) -> None:
    response = server.client.post("/v1/embeddings", content=body)
    assert response.status_code == 400, response.text
    assert detail in response.json()["detail"]


def test_another_method_is_refused(server: Served) -> None:
    response = server.client.get("/v1/embeddings")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")


def test_more_texts_than_run_at_a_time_keep_their_order(server: Served) -> None:
    texts = ["the fox", "fox", "the quick fox"] * 40
    found = vectors(embed(server, input=texts))
    np.testing.assert_array_equal(found, np.tile(vectors(embed(server, input=texts[:3])), (40, 1)))


def test_a_long_body_may_be_compressed(server: Served) -> None:
    """A body of this size is read on another thread."""
    texts = ["the fox " * 400] * 40
    body = json.dumps({"model": "bert", "input": texts}).encode()
    (expected,) = vectors(embed(server, input=texts[0]))
    for headers, content in (({}, body), ({"content-encoding": "gzip"}, gzip.compress(body))):
        response = server.client.post("/v1/embeddings", content=content, headers=headers)
        assert response.status_code == 200, response.text
        answer = response.json()
        assert all(each["truncated"] for each in answer["data"])
        np.testing.assert_array_equal(vectors(answer), np.tile(expected, (40, 1)))


def test_each_number_reads_as_the_float32_of_the_vector(server: Served) -> None:
    texts = ["the fox", "the quick brown fox jumps", "fox"]
    listed = embed(server, input=texts)["data"]
    encoded = embed(server, input=texts, encoding_format="base64")["data"]
    for numbers, text in zip(listed, encoded, strict=True):
        bits = np.frombuffer(base64.b64decode(text["embedding"]), "<f4")
        np.testing.assert_array_equal(np.array(numbers["embedding"], np.float64).astype(np.float32), bits)


@pytest.mark.parametrize("pooling", ["mean", "max", "cls", "last", "mean-sqrt", "weighted-mean", "cls+mean"])
@pytest.mark.parametrize("normalizes", [True, False])
def test_vectors_have_the_bits_of_the_pooling_in_python(server: Served, pooling: str, normalizes: bool) -> None:
    text = TextProcessing(pooling=parse_pooling(pooling), normalize=normalizes)
    with described(server, {"pooling": pooling, "normalize": normalizes}):
        for given in ("fox", "the quick brown fox jumps"):
            ids = wordpiece().encode(given).ids
            outputs = tensors_of(server, ids)
            result = result_of(outputs, ModelMetadata(task=Task.EMBED, text=text), tokens=len(ids))
            (found,) = vectors(embed(server, input=given))
            np.testing.assert_array_equal(found, np.array(result["embedding"], np.float32))


def test_the_default_prompt_is_not_added_twice(server: Served) -> None:
    (expected,) = vectors(embed(server, input="the fox"))
    prompts = {"prompts": {"query": "the ", "other": "a "}, "default_prompt": "query"}
    with described(server, prompts):
        for members in ({}, {"prompt_name": "query"}):
            np.testing.assert_array_equal(vectors(embed(server, input="fox", **members))[0], expected)
        response = server.client.post("/v1/embeddings", json={"model": "bert", "input": "a", "prompt_name": "other"})
        assert "the model's default prompt is 'query'" in response.json()["detail"]


def test_a_model_of_another_task_computes_no_embeddings(server: Served) -> None:
    with described(server, {}, task="classify"):
        response = server.client.post("/v1/embeddings", json={"model": "bert", "input": "fox"})
    assert (response.status_code, response.json()["hint"]) == (
        400,
        "set the task of its version: octet push --task embed",
    )


def test_a_deadline_ends_the_request(server: Served) -> None:
    """A text of a megabyte takes the tokenizer longer."""
    body = {"model": "bert", "input": ["the fox", "the fox " * 100_000]}
    response = server.client.post("/v1/embeddings", json=body, headers={"octet-timeout-ms": "50"})
    assert (response.status_code, response.json()["code"]) == (504, "deadline_passed")


def tensors_of(server: Served, ids: Sequence[int]) -> dict[str, Array]:
    """Returns the outputs of the model for one text, without pooling."""
    inputs = [
        {"name": name, "datatype": "INT64", "shape": [1, len(ids)], "data": data}
        for name, data in (("input_ids", list(ids)), ("attention_mask", [1] * len(ids)))
    ]
    response = server.client.post("/v2/models/bert/infer", json={"inputs": inputs})
    assert response.status_code == 200, response.text
    return {
        each["name"]: np.array(each["data"], np.float32).reshape(each["shape"]) for each in response.json()["outputs"]
    }


@contextmanager
def described(server: Served, text: dict[str, Any], task: str = "embed") -> Iterator[None]:
    """Changes the version's metadata for a while."""
    describe(server, {"task": task, "text": TEXT | text})
    try:
        yield
    finally:
        describe(server, {"task": "embed", "text": TEXT})


def describe(server: Served, members: dict[str, Any]) -> None:
    """Changes the version's metadata, and waits until the data plane has them."""
    assert server.client.patch("/api/v1/models/bert/versions/1", json=members).is_success

    def is_known() -> bool:
        known = server.client.get("/v2/models/bert").json()["parameters"]
        text = known["text"]
        # empty values are left out
        is_same = all((text.get(name) or None) == (each or None) for name, each in members["text"].items())
        return is_same and known["task"] == members["task"]

    eventually(is_known)
