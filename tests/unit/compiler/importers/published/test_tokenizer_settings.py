"""Settings beside a `tokenizer.json` replace parts of it, as AutoTokenizer does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from service.compiler.importers.published.tokenizer_settings import applied, apply_settings
from service.core.errors import Unsupported
from tests.support.published_model import write
from tests.support.tokenizers import WORDS, byte_level, wordpiece

BERT = json.loads(wordpiece().to_str())
ROBERTA = json.loads(byte_level().to_str())
PLAIN = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def changed(tmp_path: Path, members: dict[str, Any], settings: dict[str, Any], **files: Any) -> dict[str, Any]:
    """Returns the parts of a tokenizer that the settings change."""
    folder = write(tmp_path, {"tokenizer_config.json": settings, **files})
    found = apply_settings(members, folder)
    return {name: part for name, part in found.items() if part != members.get(name)}


@pytest.mark.parametrize(
    ("setting", "part"),
    [
        ({"do_lower_case": False}, {"lowercase": False}),
        ({"strip_accents": True, "tokenizer_class": "BertTokenizerFast"}, {"strip_accents": True}),
        ({"tokenize_chinese_chars": False}, {"handle_chinese_chars": False}),
    ],
)
def test_the_normalizer_of_bert(setting: dict[str, Any], part: dict[str, Any], tmp_path: Path) -> None:
    assert changed(tmp_path, BERT, setting) == {"normalizer": {**BERT["normalizer"], **part}}


def test_a_generic_class_has_no_settings(tmp_path: Path) -> None:
    settings = {"do_lower_case": False, "tokenizer_class": "PreTrainedTokenizerFast"}
    assert changed(tmp_path, BERT, settings) == {}


def test_the_space_before_a_text(tmp_path: Path) -> None:
    settings = {"add_prefix_space": True, "tokenizer_class": "RobertaTokenizer"}
    assert changed(tmp_path, ROBERTA, settings) == {
        "pre_tokenizer": {**ROBERTA["pre_tokenizer"], **{"add_prefix_space": True}}
    }
    assert changed(tmp_path, ROBERTA, {**settings, "tokenizer_class": "Qwen2Tokenizer"}) == {}


def test_tokens_are_added(tmp_path: Path) -> None:
    settings = {
        "added_tokens_decoder": {"14": {"content": "b", "special": True}, "13": {"content": "a", "lstrip": True}},
        "additional_special_tokens": ["fox", {"content": "c"}],
        "cls_token": "[CLS]",
    }
    end = len(WORDS)
    assert changed(tmp_path, BERT, settings, **{"added_tokens.json": {"z": 20}})["added_tokens"] == [
        {"id": end, "content": "a", **PLAIN, "lstrip": True, "special": False},
        {"id": end + 1, "content": "b", **PLAIN},
        {"id": end + 2, "content": "z", **PLAIN, "normalized": True, "special": False},
        {"id": 2, "content": "[CLS]", **PLAIN},
        {"id": 7, "content": "fox", **PLAIN},
        {"id": end + 3, "content": "c", **PLAIN},
    ]


def test_special_tokens_that_are_not_split_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="split_special_tokens"):
        changed(tmp_path, BERT, {"split_special_tokens": True})


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"tokenizer_class": ["x"], "do_lower_case": 3, "truncation_side": {}, "additional_special_tokens": [None, 3]},
        {"added_tokens_decoder": {"x": 3, "1": {"content": {}}}},
    ],
)
def test_other_values_change_no_byte(settings: dict[str, Any], tmp_path: Path) -> None:
    data = wordpiece().to_str().encode()
    assert applied(data, json.loads(data), write(tmp_path, {"tokenizer_config.json": settings})) is data
