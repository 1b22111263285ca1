"""Tests of the tokenizer of a published model: the file itself, or one that is built from an older format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from service.compiler.importers.published.tokenizers import read_tokenizer
from service.core.errors import InvalidInput, Unsupported
from tests.support.published_model import TOKENIZER, write

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "\u00a0", "é"]
BYTES = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "b", "\u0120", "ab", "\u0120ab"]


def test_the_file_is_taken_as_it_is(tmp_path: Path) -> None:
    text = json.dumps(TOKENIZER, indent=3)
    assert read_tokenizer(write(tmp_path, {"tokenizer.json": text, "vocab.txt": ""})) == (
        text.encode(),
        "tokenizer.json",
    )


def test_a_folder_may_have_no_tokenizer(tmp_path: Path) -> None:
    assert read_tokenizer(write(tmp_path, {"config.json": {}})) == (b"", "")


@pytest.mark.parametrize("content", [{}, {"model": "x"}, [], "{", "[" * 100_000])
def test_another_json_file_is_refused(tmp_path: Path, content: Any) -> None:
    with pytest.raises(InvalidInput, match=r"tokenizer\.json"):
        read_tokenizer(write(tmp_path, {"tokenizer.json": content}))


def test_the_vocabulary_of_bert_becomes_a_tokenizer(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="builds tokenizers from older formats")
    data, origin = read_tokenizer(write(tmp_path, {"vocab.txt": "\n".join(WORDS)}))
    encoded = tokenizers.Tokenizer.from_str(data.decode()).encode("AB x[MASK]", "a")
    assert origin == "vocab.txt"
    assert (encoded.ids, encoded.type_ids) == ([2, 5, 6, 1, 4, 3, 5, 3], [0, 0, 0, 0, 0, 0, 1, 1])


def test_the_vocabulary_of_roberta_becomes_a_tokenizer(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="builds tokenizers from older formats")
    vocabulary = {token: index for index, token in enumerate(BYTES)}
    merges = "#version: 0.2\na b\n\u0120 ab\n"
    data, _ = read_tokenizer(write(tmp_path, {"vocab.json": vocabulary, "merges.txt": merges}))
    encoded = tokenizers.Tokenizer.from_str(data.decode()).encode("ab ab <mask>", "a")
    assert encoded.ids == [0, 8, 9, 4, 2, 2, 5, 2]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"spiece.model": b"\x0a"}, r"contains spiece\.model of an unknown class"),
        ({"vocab.txt": "a", "tokenizer_config.json": {"tokenizer_class": "PhobertTokenizer"}}, "of PhobertTokenizer"),
    ],
)
def test_another_format_is_refused_with_the_way_to_convert_it(
    tmp_path: Path, files: dict[str, Any], message: str
) -> None:
    with pytest.raises(Unsupported, match=message) as refused:
        read_tokenizer(write(tmp_path, files))
    assert "AutoTokenizer" in str(refused.value.hint)


def test_a_vocabulary_without_special_tokens_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="builds tokenizers from older formats")
    with pytest.raises(InvalidInput, match=r"\[UNK\]"):
        read_tokenizer(write(tmp_path, {"vocab.txt": "a\nb"}))
