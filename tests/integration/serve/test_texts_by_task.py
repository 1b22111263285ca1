"""Trained models of texts, pushed as folders of Hugging Face, answer as transformers with ONNX Runtime does
(scripts/make_text_fixtures.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from tests.support.serving import Served, serving

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[2] / "fixtures" / "texts"
# Layers of both runtimes add floats in different orders, and a value between two int8 values becomes the one or the
# other.
TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("texts")) as served:
        for name in ("language", "entities", "ranker"):
            content = (FOLDER / f"{name}.zip").read_bytes()
            response = served.client.put("/api/v1/models", params={"name": name}, content=content)
            assert response.status_code in (200, 202), response.text
            build = served.ended(response.json()["id"])
            assert build["state"] == "succeeded", build
        yield served
        assert served.stop() == 0


def answers(name: str) -> list[dict[str, Any]]:
    """Returns what transformers answers."""
    with ZipFile(FOLDER / f"{name}.zip") as archive:
        found: list[dict[str, Any]] = json.loads(archive.read("answers.json"))
    return found


def predict(served: Served, name: str, texts: list[str]) -> list[dict[str, Any]]:
    response = served.client.post(f"/api/v1/models/{name}/predict", json={"text": texts})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["results"]
    return found


def test_the_languages_of_sentences(served: Served) -> None:
    expected = answers("language")
    for one, other in zip(predict(served, "language", [each["text"] for each in expected]), expected, strict=True):
        scores = {each["label"]: each["score"] for each in other["classes"]}
        first = one["classes"][0]
        assert first["label"] == other["classes"][0]["label"], other["text"]
        for each in one["classes"]:
            assert each["score"] == pytest.approx(scores[each["label"]], abs=TOLERANCE), other["text"]


def test_the_names_in_sentences(served: Served) -> None:
    expected = answers("entities")
    for one, other in zip(predict(served, "entities", [each["text"] for each in expected]), expected, strict=True):
        places = [(each["label"], each["start"], each["end"]) for each in other["spans"]]
        assert [(each["label"], each["start"], each["end"]) for each in one["spans"]] == places, other["text"]
        scores = [each["score"] for each in other["spans"]]
        assert [each["score"] for each in one["spans"]] == pytest.approx(scores, abs=TOLERANCE), other["text"]
        assert all(each["text"] == other["text"][each["start"] : each["end"]] for each in one["spans"])
    assert sum(len(each["spans"]) for each in expected) > 20


def test_the_scores_of_documents(served: Served) -> None:
    for each in answers("ranker"):
        body = {"model": "ranker", "query": each["query"], "documents": [each["document"]]}
        response = served.client.post("/v1/rerank", json=body)
        assert response.status_code == 200, response.text
        (found,) = response.json()["results"]
        assert found["relevance_score"] == pytest.approx(each["score"], abs=TOLERANCE), each
