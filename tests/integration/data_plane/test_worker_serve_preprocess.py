"""A data plane alone takes pictures, with the labels of its folder, and texts, with the tokenizer of its folder."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from service.cache import OciLayout
from service.cache.metadata import attach_metadata, metadata_of
from service.core.artifacts.artifact import ARTIFACT_TYPE
from service.core.digest import digest_of
from service.core.models.text import TextProcessing
from tests.support.compiled import PICTURES
from tests.support.plane_process import PlaneProcess, plane
from tests.support.serving import children_of
from tests.support.tokenizers import wordpiece
from tests.support.waiting import eventually

INFER = "/v2/models/digits/infer"
LABELS = tuple(f"digit {index}" for index in range(10))


@pytest.fixture(scope="module")
def alone(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlaneProcess]:
    folder = tmp_path_factory.mktemp("alone") / "digits"
    shutil.copytree(digits, folder)
    layout = OciLayout.open(folder)
    (artifact,) = (entry.digest for entry in layout.index() if entry.artifact_type == ARTIFACT_TYPE)
    tokenizer = wordpiece().to_str().encode()
    text = TextProcessing(digest_of(tokenizer), len(tokenizer))
    attach_metadata(layout, artifact, replace(metadata_of(layout, artifact), labels=LABELS, text=text), tokenizer)
    with plane([f"digits={folder}"]) as process:
        yield process


def label(alone: PlaneProcess, index: int) -> str:
    picture = PICTURES[index].read_bytes()
    response = httpx.post(
        f"{alone.url}{INFER}", content=picture, headers={"Content-Type": "image/png"}, timeout=60, trust_env=False
    )
    assert response.status_code == 200, response.text
    scores: list[int] = response.json()["outputs"][0]["data"]
    return LABELS[scores.index(max(scores))]


def test_a_picture_is_decoded(alone: PlaneProcess) -> None:
    assert label(alone, 3) == LABELS[3]


def test_the_labels_are_those_of_the_folder(alone: PlaneProcess) -> None:
    described = httpx.get(f"{alone.url}/v2/models/digits", trust_env=False).json()
    assert described["parameters"]["labels"] == list(LABELS)


def test_a_text_is_tokenized(alone: PlaneProcess) -> None:
    entry = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["fox"]}
    response = httpx.post(f"{alone.url}{INFER}", json={"inputs": [entry]}, timeout=60, trust_env=False)
    assert response.status_code == 400  # the folder has a tokenizer, but the model takes a picture
    assert "the model has an input 'image', which does not come from text" in response.json()["error"]


def test_a_process_that_dies_is_replaced(alone: PlaneProcess) -> None:
    assert label(alone, 1) == LABELS[1]
    (helper,) = children_of(alone.pid)
    (before,) = children_of(helper)
    os.kill(before, signal.SIGKILL)
    eventually(lambda: children_of(helper) != [before])
    assert label(alone, 2) == LABELS[2]
