"""Tokenizes the texts of a question in pieces, so that the texts of other clients take turns with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from service.core.models.picture import MAX_PIXELS
from service.core.models.text import TextProcessing
from service.workers.preprocess.pictures import SMALL_PIXELS, Progress
from service.workers.preprocess.texts import (
    MAX_TEXT_BYTES,
    Encoded,
    Text,
    Tokenized,
    TokenSpec,
    arrange,
    bytes_of,
    encode,
    format_offsets,
    lengths_of,
    most_tokens,
    split_texts,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PIXELS_OF_BYTE = MAX_PIXELS // MAX_TEXT_BYTES  # a byte of text takes about as long as so many pixels
# The processor time for one piece. A tokenizer that needs more has a regular expression that takes forever.
_TEXT_S, _TEXT_S_OF_BYTE = 0.5, 10e-6
_PIECE_BYTES = 32 << 10  # short texts are tokenized together up to this size


class Tokenizing:
    """The work on one question about texts. A thread calls `advance` until `is_done`."""

    def __init__(self, question: Mapping[str, Any], data: bytes) -> None:
        """
        Args:
            question: as `answers.Question` describes it.
            data: the texts, as `split_texts` expects them.
        """
        self._question, self._data = question, data
        self._processing = TextProcessing.from_json(question["text"])
        self._inputs = list(map(TokenSpec.from_json, question["inputs"]))
        self._lengths: list[int] = []
        self._pieces: deque[tuple[int, Sequence[Text]]] | None = None  # with their sizes in bytes
        self._encoded: list[Encoded] = []
        self._result: Tokenized | None = None

    @property
    def is_done(self) -> bool:
        return self._result is not None

    @property
    def cost(self) -> int:
        """The cost of the next call of `advance`, in pixels. All pieces of a large question are large, so that small
        questions go before them.
        """
        if self._is_small:
            return PIXELS_OF_BYTE * len(self._data)
        size = self._pieces[0][0] if self._pieces else 0
        return max(SMALL_PIXELS + 1, PIXELS_OF_BYTE * size)

    def advance(self, tokenizer: Tokenizer, progress: Progress) -> bytes:
        """Tokenizes the next piece. After the last one, returns the elements of all tensors."""
        progress.begin_piece(_TEXT_S + _TEXT_S_OF_BYTE * len(self._data))
        if self._pieces is None:
            texts = split_texts(self._data, self._question.get("pairs", False))
            self._lengths = lengths_of(self._processing, self._inputs, len(texts), self._question["batches"])
            self._pieces = deque(_pieces_of(texts))
            if not self._is_small:
                return b""
        size, piece = self._pieces.popleft()
        progress.begin_piece(_TEXT_S + _TEXT_S_OF_BYTE * size)
        most = most_tokens(self._lengths, self._processing)
        offsets = self._question.get("offsets", False)
        self._encoded += encode(tokenizer, piece, self._processing, most, with_offsets=offsets)
        if self._pieces:
            return b""
        flags = {"pads": self._question["pads"], "is_partial": self._question["text"].get("is_partial", False)}
        self._result = arrange(self._encoded, self._processing, self._inputs, self._lengths, **flags)
        return bytes_of(self._result.tensors)

    def members(self) -> dict[str, Any]:
        """Returns the members of the answer. Must not be called before `is_done`."""
        assert self._result is not None
        shapes = [list(tensor.shape) for tensor in self._result.tensors]
        members = {"shapes": shapes, "tokens": self._result.tokens, "truncated": self._result.truncated}
        if self._question.get("offsets", False):
            members["offsets"] = format_offsets(self._result.offsets)
        return members

    @property
    def _is_small(self) -> bool:
        return len(self._data) * PIXELS_OF_BYTE <= SMALL_PIXELS


def _pieces_of(texts: Sequence[Text]) -> Iterator[tuple[int, Sequence[Text]]]:
    """Yields groups of texts with the size of each. A text is never split: its tokens may depend on all of it."""
    start, size = 0, 0
    for index, each in enumerate(texts):
        size += len(each.encode()) if isinstance(each, str) else sum(len(text.encode()) for text in each)
        if size >= _PIECE_BYTES or index == len(texts) - 1:
            yield size, texts[start : index + 1]
            start, size = index + 1, 0
