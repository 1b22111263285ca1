"""Tests of tokenizers that are built from SentencePiece models. The expected ids are those of transformers 5.24.0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from service.compiler.importers.published.tokenizers import read_tokenizer
from service.core.errors import InvalidInput, Unsupported
from tests.support.published_model import sentencepiece, write

tokenizers = pytest.importorskip("tokenizers", reason="builds tokenizers of SentencePiece models")

WORDS = [("\u2581", -2.0, 1), ("a", -3.0, 1), ("b", -3.5, 1), ("ab", -4.0, 1), ("\u2581ab", -4.5, 1), ("E", -5.0, 1)]
FAIRSEQ = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), *WORDS]
ALBERT = [("<pad>", 0.0, 3), ("<unk>", 0.0, 2), ("[CLS]", 0.0, 3), ("[SEP]", 0.0, 3), ("[MASK]", 0.0, 3), *WORDS]
T5 = [("<pad>", 0.0, 3), ("</s>", 0.0, 3), ("<unk>", 0.0, 2), *WORDS]
DEBERTA = [("[PAD]", 0.0, 3), ("[CLS]", 0.0, 3), ("[SEP]", 0.0, 3), ("[UNK]", 0.0, 2), *WORDS]
XLNET = [("<unk>", 0.0, 2), *((f"<{name}>", 0.0, 3) for name in ("s", "/s", "cls", "sep", "pad", "mask")), *WORDS]
MODELS: dict[str, tuple[list[tuple[str, float, int]], int, str]] = {
    "XLMRobertaTokenizer": (FAIRSEQ, 0, "sentencepiece.bpe.model"),
    "CamembertTokenizer": (FAIRSEQ, 0, "sentencepiece.bpe.model"),
    "AlbertTokenizer": (ALBERT, 1, "spiece.model"),
    "T5Tokenizer": (T5, 2, "spiece.model"),
    "DebertaV2Tokenizer": (DEBERTA, 3, "spm.model"),
    "XLNetTokenizer": (XLNET, 0, "spiece.model"),
}
TEXT = "ab  E\u0301x b\n"


def files(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    pieces, unk_id, file = MODELS[name]
    return {file: sentencepiece(pieces, unk_id), "tokenizer_config.json": {"tokenizer_class": name, **settings}}


def encoded(root: Path, given: dict[str, Any], *texts: str) -> Any:
    data, _ = read_tokenizer(write(root, given))
    return tokenizers.Tokenizer.from_str(data.decode()).encode(*texts)


# The ids of `TEXT`; the ids and the types of "ab" and "b" as a pair.
EXPECTED: dict[str, tuple[list[int], list[int], list[int]]] = {
    "AlbertTokenizer": ([2, 9, 5, 1, 5, 7, 3], [2, 9, 3, 5, 7, 3], [0, 0, 0, 1, 1, 1]),
    "CamembertTokenizer": ([5, 11, 7, 12, 3, 7, 9, 6], [5, 11, 6, 6, 7, 9, 6], [0] * 7),
    "DebertaV2Tokenizer": ([1, 8, 4, 3, 4, 6, 2], [1, 8, 2, 4, 6, 2], [0, 0, 0, 1, 1, 1]),
    "T5Tokenizer": ([7, 3, 8, 2, 3, 5, 1], [7, 1, 3, 5, 1], [0] * 5),
    "XLMRobertaTokenizer": ([0, 8, 4, 9, 3, 4, 6, 2], [0, 8, 2, 2, 4, 6, 2], [0] * 7),
    "XLNetTokenizer": ([11, 7, 12, 0, 7, 9, 4, 3], [11, 4, 7, 9, 4, 3], [0, 0, 1, 1, 1, 2]),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_ids_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    ids, pair, types = EXPECTED[name]
    given = files(name, {})
    assert encoded(tmp_path, given, TEXT).ids == ids
    found = encoded(tmp_path, given, "ab", "b")
    assert (found.ids, found.type_ids) == (pair, types)


@pytest.mark.parametrize(
    ("name", "mask", "ids"),
    [
        ("AlbertTokenizer", "[MASK]", [2, 5, 7, 4, 5, 7, 3]),
        ("CamembertTokenizer", "<mask>", [5, 7, 9, 13, 7, 9, 6]),
        ("XLMRobertaTokenizer", "<mask>", [0, 4, 6, 10, 4, 6, 2]),
        ("XLNetTokenizer", "<mask>", [7, 9, 6, 7, 9, 4, 3]),
    ],
)
def test_the_options_of_a_special_token_are_read(tmp_path: Path, name: str, mask: str, ids: list[int]) -> None:
    given = files(name, {"mask_token": {"content": mask, "lstrip": True, "rstrip": False, "normalized": False}})
    assert encoded(tmp_path, given, f"b {mask} b").ids == ids


def test_the_sentinels_of_t5_come_last(tmp_path: Path) -> None:
    assert encoded(tmp_path, files("T5Tokenizer", {"extra_ids": 3}), "b <extra_id_2> b").ids == [3, 5, 9, 3, 5, 1]


def test_added_tokens_are_recognized(tmp_path: Path) -> None:
    decoder = {"11": {"content": "new", "special": False}, "12": {"content": ""}, "13": 5}
    assert 11 in encoded(tmp_path, files("AlbertTokenizer", {"added_tokens_decoder": decoder}), "a new b").ids


@pytest.mark.parametrize("model_type", ["xlm-roberta", "albert"])
def test_the_class_follows_from_the_model_if_no_file_names_it(tmp_path: Path, model_type: str) -> None:
    name = {"albert": "AlbertTokenizer", "xlm-roberta": "XLMRobertaTokenizer"}[model_type]
    given = files(name, {}) | {"tokenizer_config.json": {}, "config.json": {"model_type": model_type}}
    assert encoded(tmp_path, given, TEXT).ids == EXPECTED[name][0]


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        (sentencepiece(FAIRSEQ, 0, 2), {}, "not a unigram model"),
        (sentencepiece(FAIRSEQ, 0, byte_fallback=True), {}, "to bytes"),
        (sentencepiece(FAIRSEQ, 0), {"tokenizer_class": "MBartTokenizer"}, "of MBartTokenizer"),
        (sentencepiece(FAIRSEQ, 0), {"tokenizer_class": None}, "of an unknown class"),
    ],
)
def test_another_model_is_refused_with_the_way_to_convert_it(
    tmp_path: Path, data: bytes, settings: dict[str, Any], message: str
) -> None:
    given = files("XLMRobertaTokenizer", settings) | {"sentencepiece.bpe.model": data}
    with pytest.raises(Unsupported, match=message) as refused:
        read_tokenizer(write(tmp_path, given))
    assert "AutoTokenizer" in str(refused.value.hint)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"\x0a\x05",
        sentencepiece([], 0),
        b"\x08\x05" + sentencepiece(FAIRSEQ, 0)[:-3],
        b"\x0a\x03\x0a\x01\xff",
    ],
)
def test_a_damaged_model_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(InvalidInput):
        read_tokenizer(write(tmp_path, files("XLMRobertaTokenizer", {}) | {"sentencepiece.bpe.model": data}))


def test_a_model_whose_unknown_piece_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        read_tokenizer(
            write(tmp_path, files("DebertaV2Tokenizer", {"unk_token": "x"}) | {"spm.model": sentencepiece(WORDS, 99)})
        )


def test_too_many_sentinels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="extra_ids"):
        read_tokenizer(write(tmp_path, files("T5Tokenizer", {"extra_ids": 10**9})))
