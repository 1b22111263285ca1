"""Tests of the names that the folders of published models give to models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from service.cli.published import name_of, read_folder, shapes_for_texts
from service.core.models.metadata import NOTHING
from tests.support.published_model import TOKENIZER, write


def test_the_folder_gives_the_name(tmp_path: Path) -> None:
    assert name_of(tmp_path / "bge-small-en-v1.5") == "bge-small-en-v1.5"
    assert name_of(tmp_path / "Deep Model") == "deep-model"


def test_a_folder_in_the_cache_of_hugging_face_gives_the_model_s_name(tmp_path: Path) -> None:
    cached = tmp_path / "models--BAAI--bge-small-en-v1.5" / "snapshots" / "5c38ec7c405ec4b44b94cc5a9bb96e735b38267a"
    assert name_of(cached) == "bge-small-en-v1.5"


def test_a_text_model_is_built_for_every_number_of_tokens_up_to_its_maximum(tmp_path: Path) -> None:
    encoder = Path(__file__).parents[2] / "fixtures" / "lengths" / "bert.dynamic.onnx"
    write(tmp_path, {"model.onnx": encoder.read_bytes(), "tokenizer.json": TOKENIZER})
    published, described = read_folder(tmp_path, None, None, NOTHING, None)
    for longest, sizes in ((100, "16,32,64,100"), (64, "16,32,64"), (9, "9"), (None, "16,32,64,128,256,512")):
        metadata = replace(described.metadata, text=replace(described.metadata.text, max_length=longest))
        shapes = shapes_for_texts(published, metadata)
        assert shapes == f"input_ids=1x[{sizes}];attention_mask=1x[{sizes}]"
    assert shapes_for_texts(replace(published, tokenizer=b""), described.metadata) == ""
