"""Tests of the limits on tokenizer files, which are uploads."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from service.core.digest import digest_of
from service.core.errors import InvalidInput
from service.workers.preprocess.tokenizer_files import (
    MAX_PATTERN_CHARACTERS,
    MAX_PATTERNS,
    TokenizerFiles,
    check_tokenizer,
    load_tokenizer,
)
from tests.support.tokenizers import byte_level, wordpiece

DATA = wordpiece().to_str().encode()


def changed(**members: Any) -> bytes:
    return json.dumps({**json.loads(DATA), **members}).encode()


def replace(pattern: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": ""}


def nested(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"type": "Sequence", "normalizers": []}
    for _ in range(depth):
        inner = {"type": "Sequence", "normalizers": [inner]}
    return inner


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"[]", "it has no member model"),
        (b"{}", "it has no member model"),
        (changed(normalizer=nested(40)), "nested deeper than"),
        (changed(normalizer=replace("a" * (MAX_PATTERN_CHARACTERS + 1))), "a regular expression has 4097 characters"),
        (
            changed(normalizer={"type": "Sequence", "normalizers": [replace("a")] * (MAX_PATTERNS + 1)}),
            "it has 65 regular expressions",
        ),
        (changed(model={"type": "WordPiece"}), "the package tokenizers does not accept it"),
        (changed(normalizer=replace("(")), "the package tokenizers does not accept it"),
        (
            changed(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
            "the package tokenizers does not",
        ),
    ],
)
def test_files_that_are_refused(data: bytes, error: str) -> None:
    with pytest.raises(InvalidInput, match=error):
        load_tokenizer(data)


def test_the_truncation_of_a_file_is_not_used() -> None:
    tokenizer = wordpiece()
    tokenizer.enable_truncation(4)
    assert len(load_tokenizer(tokenizer.to_str().encode()).encode("fox " * 9).ids) == 11


def test_a_vocabulary_does_not_count_as_depth_or_patterns() -> None:
    members = json.loads(byte_level().to_str())
    members["model"]["vocab"]["Regex"] = len(members["model"]["vocab"])
    check_tokenizer(json.dumps(members).encode())


def test_words_are_not_split_at_random() -> None:
    members = json.loads(byte_level().to_str())
    members["model"]["dropout"] = 0.5
    assert load_tokenizer(json.dumps(members).encode()).model.dropout is None


def test_a_tokenizer_is_loaded_once(tmp_path: Path) -> None:
    path, files = tmp_path / "tokenizer.json", TokenizerFiles()
    path.write_bytes(DATA)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        first = files.load(digest_of(DATA), descriptor)
        assert files.load(digest_of(DATA), descriptor) is first
        with pytest.raises(InvalidInput, match="is damaged"):
            files.load(digest_of(b"another"), descriptor)
    finally:
        os.close(descriptor)
