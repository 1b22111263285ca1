"""The inputs of the fuzzer of the preprocessing process are reproducible, and of all types."""

from __future__ import annotations

import random
from pathlib import Path

from tests.fuzz.preprocess import folders, pictures, tokenizers


def test_a_case_depends_on_its_seed_only() -> None:
    for draw in (pictures.picture, tokenizers.tokenizer):
        assert draw(random.Random("0/5")) == draw(random.Random("0/5"))


def test_pictures_are_of_all_formats() -> None:
    heads = {pictures.picture(random.Random(f"0/{case}"))[:2] for case in range(60)}
    assert heads >= {b"\xff\xd8", b"\x89P", b"RI", b"BM", b"GI"}


def test_damaged_folders_are_refused_or_read(tmp_path: Path) -> None:
    found: list[str] = []
    for case in range(20):
        folders.check(random.Random(f"0/{case}"), tmp_path, lambda part, case, what, data: found.append(what), case)
    assert not found
