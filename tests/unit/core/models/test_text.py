"""Tests of the processing of text that is stored with a version."""

from __future__ import annotations

from typing import Any

import pytest

from service.core.digest import digest_of
from service.core.errors import InvalidInput
from service.core.models.text import MAX_TOKENIZER_BYTES, NO_TEXT, Pooling, Side, TextProcessing, TokenInput, Truncation

DIGEST = digest_of(b"{}")
ALL = TextProcessing(
    DIGEST,
    2,
    max_length=256,
    padding_side=Side.LEFT,
    pad_id=1,
    inputs={"ids": TokenInput.IDS, "mask": TokenInput.MASK},
    output="last_hidden_state",
    pooling=(Pooling.LAST,),
    normalize=False,
    prompts={"query": "query: ", "document": "passage: "},
    default_prompt="document",
    strips=True,
    lowercases=False,
    truncation=Truncation.ONLY_SECOND,
    truncation_side=Side.LEFT,
)


def test_every_member_survives_its_json_form() -> None:
    assert set(ALL.to_json()) == set(vars(ALL))
    assert TextProcessing.from_json(ALL.to_json()) == ALL
    assert NO_TEXT.to_json() == {}


def test_missing_members_are_taken_from_the_other() -> None:
    assert TextProcessing(max_length=7).over(ALL).to_json() == {**ALL.to_json(), "max_length": 7}
    assert NO_TEXT.over(ALL) == ALL.over(NO_TEXT) == ALL
    assert TextProcessing(normalize=True).over(ALL).normalize is True


def test_a_tokenizer_is_taken_with_its_size_and_prompts_with_their_default() -> None:
    merged = TextProcessing(digest_of(b""), 0, prompts={"q": "?"}).over(ALL)
    assert (merged.tokenizer_bytes, merged.prompts, merged.default_prompt) == (0, {"q": "?"}, "")


@pytest.mark.parametrize(
    "members",
    [
        {"tokenizer": "sha256:0"},
        {"tokenizer": 5},
        {"tokenizer_bytes": 1},
        {"tokenizer": DIGEST, "tokenizer_bytes": MAX_TOKENIZER_BYTES + 1},
        {"max_length": 0},
        {"max_length": True},
        {"max_length": 1 << 40},
        {"padding_side": "top"},
        {"pad_id": -1},
        {"inputs": {"x": "letters"}},
        {"inputs": ["x"]},
        {"output": 1},
        {"output": "x" * 5000},
        {"pooling": "median"},
        {"normalize": 1},
        {"prompts": {"query": 1}},
        {"prompts": {"query": "x" * 5000}},
        {"prompts": {str(index): "" for index in range(65)}},
        {"prompts": {"query": "?"}, "default_prompt": "document"},
    ],
)
def test_invalid_members_are_refused(members: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        TextProcessing.from_json(members)


def test_the_data_of_an_input_follows_from_its_usual_name_unless_it_is_set() -> None:
    assert NO_TEXT.data_of("token_type_ids") is TokenInput.TYPES
    assert NO_TEXT.data_of("ids") is None
    assert ALL.data_of("ids") is TokenInput.IDS
