"""Tests of the processing of text that tokenizers and sentence-transformers define."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from service.compiler.importers.published.modules import Steps
from service.compiler.importers.published.texts import read_text_processing
from service.core.models.text import Pooling, Side, TextProcessing
from tests.support.published_model import BERT, TOKENIZER, sentence_transformer, write


def read(root: Path, files: dict[str, Any]) -> TextProcessing:
    return read_text_processing(write(root, files), TOKENIZER, Steps((Pooling.MEAN,), normalize=True))


def test_a_model_of_sentence_transformers_is_complete(tmp_path: Path) -> None:
    assert read(tmp_path, sentence_transformer()) == TextProcessing(
        max_length=256,
        padding_side=Side.RIGHT,
        pad_id=3,
        pooling=(Pooling.MEAN,),
        normalize=True,
        prompts={"query": "q: ", "document": ""},
        strips=True,
    )


@pytest.mark.parametrize(
    ("files", "length"),
    [
        ({"config.json": BERT, "tokenizer_config.json": {"model_max_length": 128}}, 128),
        ({"config.json": BERT, "tokenizer_config.json": {"model_max_length": 10**30}}, 512),
        ({"config.json": {"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}}, 512),
        ({"config.json": {"model_type": "t5"}}, None),
        ({"config.json": BERT, "tokenizer_config.json": {"model_max_length": "many"}}, 512),
    ],
)
def test_the_smallest_length_counts(tmp_path: Path, files: dict[str, Any], length: int | None) -> None:
    assert read(tmp_path, files).max_length == length


@pytest.mark.parametrize(
    ("files", "pad_id"),
    [
        ({"special_tokens_map.json": {"pad_token": {"content": "[PAD]", "lstrip": False}}}, 3),
        ({"config.json": {"pad_token_id": 7}}, 7),
        ({"config.json": {"pad_token_id": -1}}, None),
        ({}, None),
    ],
)
def test_the_padding_token_is_found(tmp_path: Path, files: dict[str, Any], pad_id: int | None) -> None:
    assert read(tmp_path, files).pad_id == pad_id


def test_texts_are_lowercased_if_the_model_was_trained_so(tmp_path: Path) -> None:
    files = {**sentence_transformer(), "sentence_bert_config.json": {"do_lower_case": True}}
    assert read(tmp_path, files).lowercases is True
