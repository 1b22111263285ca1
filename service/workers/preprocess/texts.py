"""Converts texts to the input tensors of a model: token ids, attention mask, token types and positions."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from service.core.errors import InvalidInput, InvalidTensor, NotReady, TooLarge
from service.core.models.arrays import Array
from service.core.models.signature import DATATYPES
from service.core.models.text import MAX_TOKENS, Side, TextProcessing, TokenInput

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

MAX_TEXT_BYTES = 1 << 20  # a tokenizer takes about a second for such a text
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class TokenSpec:
    """An input of a model of text.

    Attributes:
        shapes: the possible shapes `[texts, tokens]`, in ascending order: one for each bucket, or only one.
    """

    name: str
    datatype: str
    shapes: tuple[tuple[int, ...], ...]

    @staticmethod
    def from_json(members: Mapping[str, Any]) -> TokenSpec:
        return TokenSpec(members["name"], members["datatype"], tuple(map(tuple, members["shapes"])))


@dataclass(frozen=True)
class Tokenized:
    """The tensors of some texts, in the order of the model's inputs.

    Attributes:
        tokens: the number of tokens of each text, after truncation.
        truncated: the indices of the texts that were too long.
    """

    tensors: Sequence[Array]
    tokens: Sequence[int]
    truncated: Sequence[int]


def split_texts(data: bytes) -> list[str]:
    """Returns the texts in `data`: each is its length in bytes (little-endian uint32), followed by UTF-8.

    Raises:
        InvalidInput: a text is not UTF-8.
        TooLarge: a text has more than `MAX_TEXT_BYTES` bytes.
    """
    texts: list[str] = []
    offset = 0
    while offset < len(data):
        (length,) = _LENGTH.unpack_from(data, offset)
        offset += _LENGTH.size
        if length > MAX_TEXT_BYTES:
            raise TooLarge(
                f"text {len(texts)} has {length} bytes; the limit is {MAX_TEXT_BYTES}",
                hint="split it into several texts",
            )
        try:
            texts.append(data[offset : offset + length].decode())
        except UnicodeDecodeError as error:
            raise InvalidInput(f"text {len(texts)} is not UTF-8 at byte {error.start}") from error
        offset += length
    return texts


def most_tokens(lengths: Sequence[int], processing: TextProcessing) -> int:
    """Returns the number of tokens to which texts are truncated, for the result of `lengths_of`."""
    return min(processing.max_length or lengths[-1], lengths[-1])


def tokenize(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    processing: TextProcessing,
    inputs: Sequence[TokenSpec],
    lengths: Sequence[int],
    *,
    pads: bool = False,
    is_partial: bool = False,
) -> Tokenized:
    """Returns the inputs of a model for `texts`. The smallest length that the longest text fits is used; shorter texts
    are padded.

    Args:
        tokenizer: truncates texts to `most_tokens`.
        lengths: the result of `lengths_of`.
        pads: true if the data plane pads tensors of any length, and the model ignores that padding. The length of the
            longest text is then used.
        is_partial: true if the model's builds for longer texts are missing.

    Raises:
        InvalidInput: the tokenizer fails.
        NotReady: a text is longer than the model's builds that are ready.
    """
    encodings = _encode(tokenizer, [_prepared(text, processing) for text in texts])
    longest = max(len(each.ids) for each in encodings)
    length = longest if pads and longest > 0 else next(each for each in lengths if each >= longest)
    columns = {what: _padded(encodings, what, length, processing) for what in TokenInput}
    tensors = [
        np.ascontiguousarray(columns[_data_of(processing, spec)], np.dtype(DATATYPES[spec.datatype])) for spec in inputs
    ]
    truncated = [index for index, each in enumerate(encodings) if each.overflowing]
    if truncated and is_partial and lengths[-1] < (processing.max_length or MAX_TOKENS):
        raise NotReady(
            f"text {truncated[0]} has more than {lengths[-1]} tokens, and no build for longer texts is ready",
            hint="try again later; GET /api/v1/builds shows the builds",
        )
    return Tokenized(tensors, [len(each.ids) for each in encodings], truncated)


def _data_of(processing: TextProcessing, spec: TokenSpec) -> TokenInput:
    data = processing.data_of(spec.name)
    if data is None:
        raise InvalidTensor(
            f"the model has an input {spec.name!r}, which does not come from text",
            tensor=spec.name,
            hint="set its data in the version's `inputs`: ids, mask, types or positions",
        )
    return data


def lengths_of(processing: TextProcessing, inputs: Sequence[TokenSpec], texts: int, batches: int) -> list[int]:
    """Returns the numbers of tokens that the model takes for so many texts, in ascending order.

    Args:
        batches: the number of texts that a model without buckets takes in one call.

    Raises:
        InvalidTensor: the model's inputs do not have the form of a text model, or take fewer texts.
    """
    for spec in inputs:
        _data_of(processing, spec)
        if spec.datatype not in ("INT32", "INT64") or any(len(shape) != 2 for shape in spec.shapes):
            raise InvalidTensor(
                f"input {spec.name!r} is {spec.datatype} of shape {list(spec.shapes[0])}, but tokens need INT32 or "
                "INT64 of shape [texts, tokens]",
                tensor=spec.name,
            )
    lengths = sorted(
        {
            shapes[0][1]
            for shapes in zip(*(spec.shapes for spec in inputs), strict=True)
            if len({shape[1] for shape in shapes}) == 1 and shapes[0][0] * (1 if shapes[0][0] > 1 else batches) >= texts
        }
    )
    if not lengths:
        raise InvalidTensor(
            f"the request has {texts} texts, but the model takes {max(batches, inputs[0].shapes[0][0])} at a time",
            hint="send fewer texts in a request, or use /v1/embeddings",
        )
    return lengths


def _prepared(text: str, processing: TextProcessing) -> str:
    text = processing.prompts.get(processing.default_prompt, "") + text
    if processing.strips:
        text = text.strip()
    return text.lower() if processing.lowercases else text


def _encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Encoding]:
    try:
        return tokenizer.encode_batch(list(texts))
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a panic of Rust code is not an `Exception`
        raise InvalidInput(f"the model's tokenizer cannot process the text: {error}") from error


def _padded(encodings: Sequence[Encoding], what: TokenInput, length: int, processing: TextProcessing) -> Array:
    """Returns one kind of data for all texts, int64 `[texts, length]`."""
    filling = (processing.pad_id or 0) if what is TokenInput.IDS else 0
    padded = np.full((len(encodings), length), filling, np.int64)
    for row, encoding in zip(padded, encodings, strict=True):
        values = _values(encoding, what)
        if processing.padding_side is Side.LEFT:
            row[length - len(values) :] = values
        else:
            row[: len(values)] = values
    return padded


def _values(encoding: Encoding, what: TokenInput) -> Sequence[int]:
    match what:
        case TokenInput.IDS:
            return encoding.ids
        case TokenInput.MASK:
            return encoding.attention_mask
        case TokenInput.TYPES:
            return encoding.type_ids
    return range(len(encoding.ids))


def bytes_of(tensors: Sequence[Array]) -> bytes:
    """Returns the elements of all tensors, one after the other."""
    return b"".join(tensor.tobytes() for tensor in tensors)
