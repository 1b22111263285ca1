"""Converts texts to the input tensors of a model: token ids, attention mask, token types and positions.

A pair of texts, such as a query and a document, becomes one sequence of tokens, as the tokenizer defines it. Sequences
that are too long are truncated here, to the tokens that transformers gives: the package `tokenizers` also builds the
sequences of all tokens that it removes, and for a pair those of all combinations, whose number grows with the square of
the length.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from service.core.errors import InvalidInput, InvalidTensor, NotReady, TooLarge
from service.core.models.arrays import Array
from service.core.models.signature import DATATYPES
from service.core.models.text import MAX_TOKENS, Side, TextProcessing, TokenInput, Truncation
from service.workers.preprocess.tokenizer_files import log_panic

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

MAX_TEXT_BYTES = 1 << 20  # a tokenizer takes about a second for such a text
_LENGTH = struct.Struct("<I")

Text = str | tuple[str, str]  # a text, or the two texts of a pair
Offsets = tuple[int, int]  # the first character of a token in its text, and the one after its last
NOWHERE: Offsets = (-1, -1)  # of a token that does not come from the text, such as a special token or one of a prompt


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
class Encoded:
    """The tokens of one text or pair, after truncation.

    Attributes:
        types: 0 for the first text of a pair, 1 for the second, as the tokenizer defines it.
        offsets: the positions of the tokens in the text, if they were requested; `NOWHERE` for special tokens.
    """

    ids: Sequence[int]
    types: Sequence[int]
    offsets: Sequence[Offsets] = ()
    is_truncated: bool = False


@dataclass(frozen=True)
class Tokenized:
    """The tensors of some texts, in the order of the model's inputs.

    Attributes:
        tokens: the number of tokens of each text, after truncation.
        truncated: the indices of the texts that were too long.
        offsets: the positions of the tokens of each text; empty if they were not requested.
    """

    tensors: Sequence[Array]
    tokens: Sequence[int]
    truncated: Sequence[int]
    offsets: Sequence[Sequence[Offsets]]


def split_texts(data: bytes, are_pairs: bool = False) -> list[Text]:
    """Returns the texts in `data`: each is its length in bytes (little-endian uint32), followed by UTF-8.

    Args:
        are_pairs: true if the first half of the texts are the first texts of pairs, and the second half the others.

    Raises:
        InvalidInput: a text is not UTF-8.
        TooLarge: a text has more than `MAX_TEXT_BYTES` bytes.
    """
    pieces: list[bytes] = []
    offset = 0
    while offset < len(data):
        (length,) = _LENGTH.unpack_from(data, offset)
        offset += _LENGTH.size
        pieces.append(data[offset : offset + length])
        offset += length
    if not are_pairs:
        return [_decoded(piece, f"text {index}") for index, piece in enumerate(pieces)]
    count = len(pieces) // 2
    first = [_decoded(piece, f"text {index}") for index, piece in enumerate(pieces[:count])]
    second = [_decoded(piece, f"text_pair {index}") for index, piece in enumerate(pieces[count:])]
    return list(zip(first, second, strict=True))


def _decoded(data: bytes, name: str) -> str:
    if len(data) > MAX_TEXT_BYTES:
        raise TooLarge(
            f"{name} has {len(data)} bytes; the limit is {MAX_TEXT_BYTES}", hint="split it into several texts"
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name} is not UTF-8 at byte {error.start}") from error


def most_tokens(lengths: Sequence[int], processing: TextProcessing) -> int:
    """Returns the number of tokens to which texts are truncated, for the result of `lengths_of`."""
    return min(processing.max_length or lengths[-1], lengths[-1])


def encode(
    tokenizer: Tokenizer, texts: Sequence[Text], processing: TextProcessing, most: int, *, with_offsets: bool = False
) -> list[Encoded]:
    """Returns the tokens of each text.

    Args:
        tokenizer: does not truncate.
        most: the number of tokens to which a text is truncated, the result of `most_tokens`.
        with_offsets: true to return the positions of the tokens.

    Raises:
        InvalidInput: the tokenizer fails.
    """
    encodings = _encodings(tokenizer, [_prepared(text, processing) for text in texts])
    found: list[Encoded] = []
    for text in texts:
        # an encoding takes a hundred bytes for each token of the text, of which only the first few are used
        encoded = _truncated(encodings.popleft(), most, processing, isinstance(text, tuple), with_offsets)
        if with_offsets:
            encoded = replace(encoded, offsets=_in_text(text, encoded.offsets, processing))
        found.append(encoded)
    return found


def arrange(
    encoded: Sequence[Encoded],
    processing: TextProcessing,
    inputs: Sequence[TokenSpec],
    lengths: Sequence[int],
    *,
    pads: bool = False,
    is_partial: bool = False,
) -> Tokenized:
    """Returns the inputs of a model for the results of `encode`. The smallest length that the longest text fits is
    used; shorter texts are padded.

    Args:
        lengths: the result of `lengths_of`.
        pads: true if the data plane pads tensors of any length, and the model ignores that padding. The length of the
            longest text is then used.
        is_partial: true if the model's builds for longer texts are missing.

    Raises:
        NotReady: a text is longer than the model's builds that are ready.
    """
    longest = max(len(each.ids) for each in encoded)
    length = longest if pads and longest > 0 else next(each for each in lengths if each >= longest)
    columns = {what: _padded(encoded, what, length, processing) for what in TokenInput}
    tensors = [
        np.ascontiguousarray(columns[_data_of(processing, spec)], np.dtype(DATATYPES[spec.datatype])) for spec in inputs
    ]
    truncated = [index for index, each in enumerate(encoded) if each.is_truncated]
    if truncated and is_partial and lengths[-1] < (processing.max_length or MAX_TOKENS):
        raise NotReady(
            f"text {truncated[0]} has more than {lengths[-1]} tokens, and no build for longer texts is ready",
            hint="try again later; GET /api/v1/builds shows the builds",
        )
    return Tokenized(tensors, [len(each.ids) for each in encoded], truncated, [each.offsets for each in encoded])


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


def _prepared(text: Text, processing: TextProcessing) -> Text:
    """Returns a text as it is tokenized. The prompt comes before the first text of a pair."""
    prompt = processing.prompts.get(processing.default_prompt, "")
    if isinstance(text, str):
        return _cleaned(prompt + text, processing)
    return _cleaned(prompt + text[0], processing), _cleaned(text[1], processing)


def _in_text(text: Text, offsets: Sequence[Offsets], processing: TextProcessing) -> Sequence[Offsets]:
    """Returns the positions in a text, for the positions in the text that `_prepared` returned for it. Positions in the
    second text of a pair are not converted.
    """
    prompt = processing.prompts.get(processing.default_prompt, "")
    if not isinstance(text, str) or not (prompt or processing.strips or processing.lowercases):
        return offsets
    whole = prompt + text
    removed = len(whole) - len(whole.lstrip()) if processing.strips else 0
    shift = removed - len(prompt)
    # for each character that was tokenized, its original character: a lower-case form may be longer
    forms = (each.lower() if processing.lowercases else each for each in whole[removed:])
    origins = [index + shift for index, form in enumerate(forms) for _ in form]
    # a token of both the prompt and the text begins with the text
    found = [
        each if each == NOWHERE or each[0] == each[1] else (max(0, origins[each[0]]), origins[each[1] - 1] + 1)
        for each in offsets
    ]
    return [each if each[0] < each[1] else NOWHERE for each in found]


def _cleaned(text: str, processing: TextProcessing) -> str:
    if processing.strips:
        text = text.strip()
    return text.lower() if processing.lowercases else text


def _encodings(tokenizer: Tokenizer, texts: Sequence[Text]) -> deque[Encoding]:
    try:
        return deque(tokenizer.encode_batch(list(texts)))
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        log_panic(error)
        raise InvalidInput(f"the model's tokenizer cannot process the text: {error}") from error


def _truncated(encoding: Encoding, most: int, processing: TextProcessing, is_pair: bool, with_offsets: bool) -> Encoded:
    """Returns the tokens of an encoding, of which at most `most` are left. Special tokens are never removed."""
    if len(encoding) <= most and not with_offsets:
        return Encoded(encoding.ids, encoding.type_ids)
    owners = encoding.sequence_ids  # the text of each token; None for special tokens
    offsets: list[Offsets] = []
    if with_offsets:
        offsets = [NOWHERE if owner is None else each for owner, each in zip(owners, encoding.offsets, strict=True)]
    if len(encoding) <= most:
        return Encoded(encoding.ids, encoding.type_ids, offsets)
    counts = [owners.count(0), owners.count(1)]
    most_of_texts = most - (len(owners) - sum(counts))
    if most_of_texts < 0:
        raise InvalidInput(
            f"the model's tokenizer adds {len(owners) - sum(counts)} special tokens to each text, but the model takes "
            f"{most} tokens",
            hint="use a model that takes more tokens, or upload another tokenizer.json",
        )
    kept = _shares(counts, most_of_texts, processing.truncation if is_pair else None)
    if processing.truncation_side is Side.LEFT:
        bounds = [(count - share, count) for count, share in zip(counts, kept, strict=True)]
    else:
        bounds = [(0, share) for share in kept]
    seen, positions = [0, 0], list[int]()
    for position, owner in enumerate(owners):
        if owner is None:
            positions.append(position)
            continue
        begin, end = bounds[owner]
        if begin <= seen[owner] < end:
            positions.append(position)
        seen[owner] += 1
    ids, types = encoding.ids, encoding.type_ids
    return Encoded(
        [ids[each] for each in positions],
        [types[each] for each in positions],
        [offsets[each] for each in positions] if with_offsets else (),
        is_truncated=True,
    )


def _shares(counts: Sequence[int], most: int, truncation: Truncation | None) -> tuple[int, int]:
    """Returns how many tokens of each text of a pair are kept, so that together they are `most`. The rules are those of
    `truncate_encodings` in the package `tokenizers`.

    Raises:
        InvalidInput: the text that is to be truncated has too few tokens.
    """
    first, second = counts
    match truncation:
        case Truncation.ONLY_FIRST | Truncation.ONLY_SECOND:
            other = second if truncation is Truncation.ONLY_FIRST else first
            if other >= most:
                raise InvalidInput(
                    f"a pair has {first} and {second} tokens, but only its "
                    f"{truncation.removeprefix('only_')} text is truncated, and {most} tokens fit",
                    hint="shorten the other text, or set text.truncation of the version to longest_first",
                )
            return (most - other, other) if truncation is Truncation.ONLY_FIRST else (other, most - other)
    shorter, longer = min(first, second), 0
    longer = shorter if shorter > most else max(shorter, most - shorter)
    if shorter + longer > most:
        shorter = most // 2
        longer = shorter + most % 2
    return (longer, shorter) if first > second else (shorter, longer)


def _padded(sequences: Sequence[Encoded], what: TokenInput, length: int, processing: TextProcessing) -> Array:
    """Returns one kind of data for all texts, int64 `[texts, length]`."""
    filling = (processing.pad_id or 0) if what is TokenInput.IDS else 0
    padded = np.full((len(sequences), length), filling, np.int64)
    for row, sequence in zip(padded, sequences, strict=True):
        values = _values(sequence, what)
        if processing.padding_side is Side.LEFT:
            row[length - len(values) :] = values
        else:
            row[: len(values)] = values
    return padded


def _values(sequence: Encoded, what: TokenInput) -> Sequence[int]:
    match what:
        case TokenInput.IDS:
            return sequence.ids
        case TokenInput.MASK:
            return [1] * len(sequence.ids)
        case TokenInput.TYPES:
            return sequence.types
    return range(len(sequence.ids))


def format_offsets(offsets: Sequence[Sequence[Offsets]]) -> str:
    """Returns the positions of the tokens of some texts as `begin,end,begin,end`, with a semicolon between texts."""
    return ";".join(",".join(f"{begin},{end}" for begin, end in each) for each in offsets)


def bytes_of(tensors: Sequence[Array]) -> bytes:
    """Returns the elements of all tensors, one after the other."""
    return b"".join(tensor.tobytes() for tensor in tensors)
