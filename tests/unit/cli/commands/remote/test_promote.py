"""Parsing of the least scores in a command line."""

from __future__ import annotations

import pytest

from service.cli.commands.remote.promote import parse_least
from service.core.errors import InvalidInput


def test_each_text_is_a_name_and_a_number() -> None:
    assert parse_least([]) == {}
    assert parse_least(["top1=0.7", "top1.low=-1e-3", "a=b=1"]) == {"top1": 0.7, "top1.low": -0.001, "a=b": 1.0}


@pytest.mark.parametrize("texts", [["top1"], ["=0.7"], ["top1=high"], ["top1=nan"], ["top1=inf"], ["a=1", "a=2"]])
def test_other_texts_are_refused(texts: list[str]) -> None:
    with pytest.raises(InvalidInput, match="not the least value of one more score") as refused:
        parse_least(texts)
    assert refused.value.hint == "write it like top1=0.7"
