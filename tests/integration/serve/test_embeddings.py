"""Embeddings, as clients of OpenAI's API request them, of a small encoder with dynamic quantization."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.core.models.arrays import Array
from tests.support.serving import Served, serving
from tests.support.tokenizers import wordpiece

SOURCE = Path(__file__).parents[2] / "fixtures" / "lengths" / "bert.dynamic.onnx"
WIDTH = 16


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
        text = {"pooling": "mean", "normalize": True, "prompts": {"query": "the "}}
        members = {"task": "embed", "text": text}
        assert served.client.patch(version, json=members).is_success
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
        ({"input": []}, 400, "input is empty"),
        ({"input": [[]]}, 400, "an empty list of token ids"),
        ({"input": "fox", "dimensions": WIDTH + 1}, 400, "vectors have 16 numbers"),
        ({"input": "fox", "model": "absent"}, 404, "there is no model 'absent'"),
        ({"input": "fox", "model": "bert/versions/1"}, 404, "there is no model"),
        ({"input": 7}, 400, "input"),
        ({"input": "fox", "prompt_name": "other"}, 400, "no prompt 'other'"),
        ({"input": [1, 2], "prompt_name": "query"}, 400, "token ids cannot have a prompt"),
        ({"input": [[1] * 9]}, 400, "[1, 9]"),
    ],
)
def test_errors_say_what_is_wrong(server: Served, members: dict[str, Any], status: int, detail: str) -> None:
    response = server.client.post("/v1/embeddings", json={"model": "bert", **members})
    assert response.status_code == status, response.text
    assert detail in response.json()["detail"]
