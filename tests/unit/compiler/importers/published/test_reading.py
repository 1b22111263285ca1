"""Tests of a published model as a whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from service.compiler.importers.published.reading import is_published, lacks_pooling, read_published
from service.core.models.task import Task
from service.core.models.text import Pooling
from tests.support.published_model import BERT, TOKENIZER, encoder, sentence_transformer, write


def test_a_folder_of_sentence_transformers_is_read(tmp_path: Path) -> None:
    files = {
        "onnx/model_quantized.onnx": encoder({"last_hidden_state": 3}),
        "README.md": "",
        "pytorch_model.bin": b"\x80",
    }
    write(tmp_path, sentence_transformer() | files)
    found = read_published(tmp_path)
    assert found.file == tmp_path / "onnx" / "model_quantized.onnx"
    assert (found.metadata.task, found.metadata.text.pooling) == (Task.EMBED, Pooling.MEAN)
    assert json.loads(found.tokenizer) == TOKENIZER
    assert found.ignored == ["README.md", "pytorch_model.bin"]
    assert set(found.sources) == set(sentence_transformer())
    assert not lacks_pooling(found, found.metadata)


@pytest.mark.parametrize("outputs", [{"token_embeddings": 3, "sentence_embedding": 2}, {"sentence_embedding": 2}])
def test_a_file_that_pools_itself_needs_no_pooling(tmp_path: Path, outputs: dict[str, int]) -> None:
    write(tmp_path, sentence_transformer(pooling_mode_max_tokens=True) | {"model.onnx": encoder(outputs)})
    found = read_published(tmp_path)
    assert found.metadata.text.pooling is None
    assert found.metadata.text.output == ("sentence_embedding" if len(outputs) == 2 else "")
    assert not lacks_pooling(found, found.metadata)


def test_a_folder_without_pooling_is_recognized(tmp_path: Path) -> None:
    model = encoder({"last_hidden_state": 3, "pooler_output": 2})
    write(tmp_path, {"config.json": BERT, "tokenizer.json": TOKENIZER, "model.onnx": model})
    found = read_published(tmp_path)
    assert found.metadata.task is Task.EMBED
    assert lacks_pooling(found, found.metadata)


def test_a_given_tokenizer_replaces_that_of_the_folder(tmp_path: Path) -> None:
    write(tmp_path / "model", {"config.json": BERT, "tokenizer.json": TOKENIZER, "model.onnx": encoder({"y": 3})})
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**TOKENIZER, "version": "2"}))
    found = read_published(tmp_path / "model", tokenizer=other)
    assert json.loads(found.tokenizer)["version"] == "2"


def test_a_damaged_model_is_left_to_the_compiler(tmp_path: Path) -> None:
    write(tmp_path, {"model.onnx": b"\xff\xff", "config.json": {}})
    assert read_published(tmp_path).metadata.task is None


def test_an_artifact_is_not_a_published_model(tmp_path: Path) -> None:
    write(tmp_path, {"a/config.json": {}, "b/oci-layout": {}, "c": ""})
    assert [is_published(tmp_path / name) for name in "abc"] == [True, False, False]
