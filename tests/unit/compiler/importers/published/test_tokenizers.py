"""Tests of the tokenizer of a published model: the file itself, or one that is built from an older format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from service.compiler.importers.published.tokenizers import read_tokenizer
from service.core.errors import InvalidInput, Unsupported
from tests.support.published_model import TOKENIZER, sentencepiece, write

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


MERGED = ["<|startoftext|>", "<|endoftext|>", "a", "b", "\u0120", "ab", "\u0120ab", "a</w>", "b</w>", "ab</w>"]
LLAMA = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
GEMMA = [("<pad>", 0.0, 3), ("<eos>", 0.0, 3), ("<bos>", 0.0, 3), ("<unk>", 0.0, 2)]
PAIRS = [*((f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)), ("\u2581a", -1.0, 1), ("ab", -2.0, 1)]
PAIRS += [("\u2581ab", -3.0, 1), ("\u2581", -9.0, 1), ("a", -10.0, 1), ("b", -11.0, 1)]
LEGACY = {"tokenizer_class": "LlamaTokenizer", "legacy": True, "add_eos_token": True}


# The ids are those of AutoTokenizer of transformers 4.57.6 with sentencepiece 0.2.3.
@pytest.mark.parametrize(
    ("merges", "config", "settings", "ids", "pair"),
    [
        ("a b\n\u0120 ab\n", {"model_type": "gpt2"}, {"add_bos_token": True}, [1, 4, 6, 2], [1, 5, 3]),
        ("a b</w>\n", {"model_type": "clip"}, {}, [0, 9, 9, 1, 1, 1, 1, 7, 1], [0, 9, 1, 1, 8, 1]),
        ("a b</w>\n", {}, {"tokenizer_class": "CLIPTokenizer"}, [0, 9, 9, 1, 1, 1, 1, 7, 1], [0, 9, 1, 1, 8, 1]),
    ],
)
def test_the_vocabularies_of_gpt2_and_clip_become_tokenizers(
    tmp_path: Path, merges: str, config: Any, settings: Any, ids: list[int], pair: list[int]
) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="builds tokenizers from older formats")
    files = {
        "vocab.json": {token: index for index, token in enumerate(MERGED)},
        "merges.txt": f"#version: 0.2\n{merges}",
    }
    data, _ = read_tokenizer(write(tmp_path, {**files, "config.json": config, "tokenizer_config.json": settings}))
    tokenizer = tokenizers.Tokenizer.from_str(data.decode())
    assert (tokenizer.encode("AB  ab</s>a").ids, tokenizer.encode("ab", "b").ids) == (ids, pair)


@pytest.mark.parametrize(
    ("model", "settings", "ids", "pair"),
    [
        (
            sentencepiece([*LLAMA, *PAIRS], 0, 2, byte_fallback=True),
            LEGACY,
            [1, 262, 68, 69, 262, 261, 2, 259, 2],
            [1, 261, 2, 1, 262, 264, 2],
        ),
        (
            sentencepiece([*LLAMA, *PAIRS], 0, 2, byte_fallback=True),
            {"tokenizer_class": "LlamaTokenizer", "legacy": False},
            [1, 262, 68, 69, 262, 261, 2, 263],
            [1, 261, 1, 262, 264],
        ),
        (
            sentencepiece([*GEMMA, *PAIRS], 3, 2, byte_fallback=True),
            {"tokenizer_class": "GemmaTokenizerFast"},
            [2, 69, 70, 263, 262, 64, 51, 119, 66, 264],
            [2, 261, 2, 265],
        ),
    ],
    ids=["llama", "llama without legacy", "gemma"],
)
def test_sentencepiece_models_of_pairs_become_tokenizers(
    tmp_path: Path, model: bytes, settings: Any, ids: list[int], pair: list[int]
) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="builds tokenizers from older formats")
    data, _ = read_tokenizer(write(tmp_path, {"tokenizer.model": model, "tokenizer_config.json": settings}))
    tokenizer = tokenizers.Tokenizer.from_str(data.decode())
    assert (tokenizer.encode("AB  ab</s>a").ids, tokenizer.encode("ab", "b").ids) == (ids, pair)


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (sentencepiece([*LLAMA, ("a", 0.0, 1)], 0), Unsupported, "is not a model of pairs"),
        (sentencepiece([*LLAMA, ("a" * 257, 0.0, 1)], 0, 2), InvalidInput, "has 257 characters"),
    ],
)
def test_another_sentencepiece_model_is_refused(
    tmp_path: Path, model: bytes, error: type[Exception], message: str
) -> None:
    pytest.importorskip("tokenizers", reason="builds tokenizers from older formats")
    with pytest.raises(error, match=message):
        read_tokenizer(write(tmp_path, {"tokenizer.model": model, "tokenizer_config.json": LEGACY}))


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
