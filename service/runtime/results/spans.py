"""Spans of a text, from the scores of its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.core.errors import InvalidInput
from service.core.models.arrays import Array
from service.core.models.metadata import ModelMetadata
from service.core.models.text import Side
from service.runtime.results.scoring import activated, label_of

_OUTSIDE = "O"  # the label of tokens that belong to no span


@dataclass(frozen=True)
class TokenizedText:
    """A text, and the positions of its tokens.

    Attributes:
        offsets: for each token, the index of its first character and the index after its last one; -1 and -1 for a
            token that does not come from the text.
    """

    text: str
    offsets: Sequence[tuple[int, int]]


def parse_offsets(parameter: str) -> list[tuple[int, int]]:
    """Parses the response parameter `token_offsets` for one text: `begin,end,begin,end`.

    Raises:
        ValueError: the parameter is not of that form.
    """
    numbers = [int(each) for each in parameter.split(",")] if parameter else []
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def spans_of(scores: Array, source: TokenizedText, metadata: ModelMetadata) -> list[dict[str, Any]]:
    """Returns the spans in their order, as the pipeline `token-classification` of transformers does with the
    aggregation `simple`: neighboring tokens of one class are a span, and a label that begins with `B-` starts a new
    one. The score of a span is the mean of the scores of its tokens. Tokens of the class `O` are left out.

    Args:
        scores: the outputs of the model for each token, `[1, tokens, classes]`. Tokens beyond the text are padding.

    Raises:
        InvalidInput: the output does not have this form.
    """
    if scores.ndim < 2 or scores.shape[-2] < len(source.offsets) or scores.size != scores.shape[-2] * scores.shape[-1]:
        raise InvalidInput(f"an output of shape {list(scores.shape)} does not have scores for each token")
    rows = scores.reshape(-1, scores.shape[-1])
    count = len(source.offsets)
    rows = rows[len(rows) - count :] if metadata.text.padding_side is Side.LEFT else rows[:count]
    shares = activated(rows, metadata.activation)
    tokens = [
        _Token(label_of(int(best), metadata), float(row[best]), begin, end)
        for row, best, (begin, end) in zip(shares, shares.argmax(axis=-1), source.offsets, strict=True)
        if begin >= 0
    ]
    return [
        {
            "label": group[0].type,
            "score": float(np.mean([each.score for each in group])),
            "start": group[0].begin,
            "end": group[-1].end,
            "text": source.text[group[0].begin : group[-1].end],
        }
        for group in _groups(tokens)
        if group[0].type != _OUTSIDE
    ]


@dataclass(frozen=True)
class _Token:
    label: str
    score: float
    begin: int
    end: int

    @property
    def type(self) -> str:
        """The label without its prefix `B-` or `I-`."""
        return self.label[2:] if self.label[:2] in ("B-", "I-") else self.label


def _groups(tokens: Sequence[_Token]) -> Iterator[list[_Token]]:
    group: list[_Token] = []
    for token in tokens:
        if group and (token.type != group[-1].type or token.label.startswith("B-")):
            yield group
            group = []
        group.append(token)
    if group:
        yield group
