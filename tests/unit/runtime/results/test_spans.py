"""Tests of spans: the scores of tokens become the parts of the text that have a label."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from service.core.errors import InvalidInput
from service.core.models.metadata import ModelMetadata
from service.core.models.task import Activation, Task
from service.core.models.text import Side, TextProcessing
from service.runtime.results.spans import TokenizedText, parse_offsets, spans_of

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "MISC")
METADATA = ModelMetadata(LABELS, task=Task.CLASSIFY_TOKENS, activation=Activation.SOFTMAX)
TEXT = "aa bb cc dd"
OFFSETS = [(-1, -1), (0, 2), (3, 5), (6, 8), (9, 11), (-1, -1)]


def spans(labels: Sequence[str], padding: int = 0, metadata: ModelMetadata = METADATA) -> list[tuple[str, int, int]]:
    """Returns the spans if the four words have these labels."""
    scores = np.zeros((1, len(OFFSETS) + padding, len(LABELS)), np.float32)
    begin = padding if metadata.text.padding_side is Side.LEFT else 0
    for position, label in enumerate(labels, begin + 1):
        scores[0, position, LABELS.index(label)] = 5
    found = spans_of(scores, TokenizedText(TEXT, OFFSETS), metadata)
    for each in found:
        assert each["text"] == TEXT[each["start"] : each["end"]]
    return [(each["label"], each["start"], each["end"]) for each in found]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["B-PER", "I-PER", "O", "B-LOC"], [("PER", 0, 5), ("LOC", 9, 11)]),
        (["B-PER", "B-PER", "O", "O"], [("PER", 0, 2), ("PER", 3, 5)]),
        (["I-PER", "I-PER", "I-LOC", "I-LOC"], [("PER", 0, 5), ("LOC", 6, 11)]),
        (["B-PER", "O", "I-PER", "O"], [("PER", 0, 2), ("PER", 6, 8)]),
        (["MISC", "MISC", "O", "MISC"], [("MISC", 0, 5), ("MISC", 9, 11)]),
        (["B-PER", "I-LOC", "O", "O"], [("PER", 0, 2), ("LOC", 3, 5)]),
        (["O", "O", "O", "O"], []),
    ],
)
def test_neighbors_of_one_class_are_a_span(labels: list[str], expected: list[tuple[str, int, int]]) -> None:
    assert spans(labels) == expected


def test_padding_has_no_spans() -> None:
    labels = ["O", "O", "B-PER", "O"]
    assert spans(labels, padding=3) == [("PER", 6, 8)]
    left = ModelMetadata(LABELS, activation=Activation.SOFTMAX, text=TextProcessing(padding_side=Side.LEFT))
    assert spans(labels, padding=3, metadata=left) == [("PER", 6, 8)]


def test_the_score_is_the_mean_of_the_tokens() -> None:
    scores = np.zeros((1, 2, len(LABELS)), np.float32)
    scores[0, 0, 1], scores[0, 1, 2] = 2, 4
    (span,) = spans_of(scores, TokenizedText("ab", [(0, 1), (1, 2)]), METADATA)
    shares = [math.exp(each) / (math.exp(each) + len(LABELS) - 1) for each in (2, 4)]
    assert span["score"] == pytest.approx(sum(shares) / 2, rel=1e-12)


@pytest.mark.parametrize("shape", [(6,), (1, 5, 6), (2, 6, 6)])
def test_outputs_of_another_form_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput, match="scores for each token"):
        spans_of(np.zeros(shape, np.float32), TokenizedText(TEXT, OFFSETS), METADATA)


def test_offsets_are_parsed() -> None:
    assert parse_offsets("-1,-1,0,3") == [(-1, -1), (0, 3)]
    assert parse_offsets("") == []
    with pytest.raises(ValueError, match="shorter"):
        parse_offsets("1")
