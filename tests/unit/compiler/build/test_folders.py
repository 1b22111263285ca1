"""Tests of reading the folder of a published model in a sandboxed child."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from service.compiler.build.folders import read_folder
from service.compiler.messages.published import MODEL_FILE, TOKENIZER_FILE
from service.core.errors import InvalidInput, MalformedModel
from service.core.settings import Settings
from service.core.target import parse_target
from tests.support.published_model import TOKENIZER, encoder, sentence_transformer, write


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    path = tmp_path / "scratch"
    path.mkdir()
    return path


def test_a_folder_gives_a_model_a_tokenizer_and_metadata(tmp_path: Path, scratch: Path) -> None:
    model = encoder({"y": 3})
    root = write(tmp_path / "m", sentence_transformer() | {"model.onnx": model, "model_int8.onnx": model + b"\0"}).root
    target = parse_target("x86-64-v3")
    result = read_folder(root, scratch, Settings(), variant="model", target=target, pooling="cls", max_length=20)
    assert (scratch / MODEL_FILE).read_bytes() == model
    assert json.loads((scratch / TOKENIZER_FILE).read_text()) == TOKENIZER
    assert (result.found.variant, result.found.variants) == ("model", ("model", "int8"))
    assert result.found.input_shape == "input_ids=1x..20"
    assert result.metadata["text"]["pooling"] == "cls"


def test_a_snapshot_in_the_cache_of_hugging_face_is_read(tmp_path: Path, scratch: Path) -> None:
    cached = tmp_path / "models--a--b"
    write(cached, {"blobs/1": encoder({"y": 2})})
    snapshot = cached / "snapshots" / "5c38"
    snapshot.mkdir(parents=True)
    (snapshot / "model.onnx").symlink_to(cached / "blobs" / "1")
    assert read_folder(snapshot, scratch, Settings()).found.file == "model.onnx"


def test_an_error_of_the_folder_names_the_file(tmp_path: Path, scratch: Path) -> None:
    root = write(tmp_path / "m", {"model.onnx": encoder({"y": 2}), "config.json": "{"}).root
    with pytest.raises(InvalidInput, match=r"config\.json is not well-formed JSON"):
        read_folder(root, scratch, Settings())


def test_an_archive_that_unpacks_to_more_than_an_upload_is_refused(tmp_path: Path, scratch: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("model.onnx", bytes(1 << 20))
    with pytest.raises(MalformedModel, match="too large"):
        read_folder(tmp_path / "bomb.zip", scratch, Settings(max_upload_bytes=1 << 19))
