"""Tests of uploads of published models. The command line's tests cover the usual case."""

from __future__ import annotations

import io
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.api.control import folder_uploads
from tests.support.control_plane import ControlPlane, control_plane
from tests.support.published_model import encoder, sentence_transformer, write


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with control_plane(tmp_path / "data") as plane:
        yield plane


@pytest.fixture
def archive(tmp_path: Path) -> bytes:
    folder = write(tmp_path / "m", sentence_transformer() | {"onnx/model.onnx": encoder({"y": 3})})
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for name in folder.names:
            target.write(folder.path(name), f"bge/{name}")
    return packed.getvalue()


def test_parameters_replace_what_the_folder_defines(plane: ControlPlane, archive: bytes) -> None:
    query = {"pooling": "cls+max", "normalize": False, "task": "rerank", "max_length": 20, "variant": "model"}
    answer = plane.push(archive, "m", **query)
    assert answer.status_code == 202, answer.text
    assert answer.json()["options"]["input_shapes"] == {"input_ids": [1, 20]}
    metadata = plane.services.models.version("m", 1).metadata
    assert (metadata.task, metadata.text.pooling, metadata.text.normalize) == ("rerank", ("cls", "max"), False)


def test_an_unknown_variant_is_refused_and_nothing_is_stored(plane: ControlPlane, archive: bytes) -> None:
    answer = plane.push(archive, "m", variant="q9")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")
    assert plane.client.get("/api/v1/models/m").status_code == 404


def test_a_variant_of_a_single_file_is_refused(plane: ControlPlane) -> None:
    assert "not the folder" in plane.push(variant="int8").json()["detail"]


def test_further_folders_are_refused_while_many_are_read(
    plane: ControlPlane, archive: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_uploads, "_PLACES", threading.Semaphore(0))
    answer = plane.push(archive, "m")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")


def test_an_archive_with_a_name_outside_of_the_folder_is_refused(plane: ControlPlane) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as target:
        target.writestr("config.json", "{}")
        target.writestr("../../evil.onnx", "x")
    answer = plane.push(packed.getvalue(), "m")
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_model")
