"""Tests of the tensors that texts become."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from tokenizers import Tokenizer

from service.core.errors import InvalidInput, InvalidTensor, NotReady, TooLarge
from service.core.models.text import Side, TextProcessing, TokenInput, Truncation
from service.workers.preprocess.texts import (
    MAX_TEXT_BYTES,
    NOWHERE,
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
from service.workers.preprocess.tokenizer_files import load_tokenizer
from tests.support.tokenizers import byte_level, unigram, wordpiece

NAMES = ("input_ids", "attention_mask", "token_type_ids")
INPUTS = [TokenSpec(name, "INT64", ((1, 8),)) for name in NAMES]
BUCKETS = [TokenSpec(name, "INT32", ((1, 4), (1, 8), (2, 8), (1, 16))) for name in NAMES]
PLAIN = TextProcessing()


def tokenize(
    tokenizer: Tokenizer,
    texts: Sequence[Text],
    processing: TextProcessing,
    inputs: Sequence[TokenSpec],
    lengths: Sequence[int],
    *,
    with_offsets: bool = False,
    **flags: bool,
) -> Tokenized:
    most = most_tokens(lengths, processing)
    return arrange(
        encode(tokenizer, texts, processing, most, with_offsets=with_offsets), processing, inputs, lengths, **flags
    )


def tokens(
    texts: Sequence[Text],
    inputs: Sequence[TokenSpec] = INPUTS,
    processing: TextProcessing = PLAIN,
    batches: int = 1,
    tokenizer: Tokenizer | None = None,
) -> Tokenized:
    lengths = lengths_of(processing, inputs, len(texts), batches)
    data = (tokenizer or wordpiece()).to_str().encode()
    return tokenize(load_tokenizer(data), texts, processing, inputs, lengths)


def rows(tokenized: Tokenized) -> list[list[list[int]]]:
    return [tensor.tolist() for tensor in tokenized.tensors]


def test_a_short_text_is_padded() -> None:
    found = tokens(["The fox jumps"])
    assert rows(found) == [[[2, 4, 7, 8, 9, 3, 0, 0]], [[1, 1, 1, 1, 1, 1, 0, 0]], [[0] * 8]]
    assert (found.tokens, found.truncated) == ([6], [])


def test_a_long_text_is_truncated_before_its_last_special_token() -> None:
    found = tokens(["the quick brown fox jumps over the quick fox"])
    assert rows(found)[0] == [[2, 4, 5, 6, 7, 8, 9, 3]]
    assert (found.tokens, found.truncated) == ([8], [0])


def test_more_special_tokens_than_the_model_takes_are_refused() -> None:
    with pytest.raises(InvalidInput, match="adds 2 special tokens to each text, but the model takes 1 tokens"):
        tokens(["fox"], processing=TextProcessing(max_length=1))


def test_max_length_truncates_earlier_than_the_shape() -> None:
    found = tokens(["the quick brown fox", "fox"], batches=2, processing=TextProcessing(max_length=4))
    assert rows(found)[0] == [[2, 4, 5, 3, 0, 0, 0, 0], [2, 7, 3, 0, 0, 0, 0, 0]]
    assert found.truncated == [0]


@pytest.mark.parametrize(
    ("text", "length"), [("", 4), ("fox", 4), ("the fox the", 8), ("fox " * 7, 16), ("fox " * 99, 16)]
)
def test_the_smallest_bucket_that_fits_is_used(text: str, length: int) -> None:
    (ids, *_) = tokens([text], BUCKETS).tensors
    assert (ids.shape, ids.dtype) == ((1, length), np.dtype("int32"))


def test_a_model_that_pads_gets_the_length_of_the_longest_text() -> None:
    lengths = lengths_of(PLAIN, BUCKETS, 2, 1)
    tokenizer = load_tokenizer(wordpiece().to_str().encode())
    found = tokenize(tokenizer, ["fox", "the fox"], PLAIN, BUCKETS, lengths, pads=True)
    assert found.tensors[0].tolist() == [[2, 7, 3, 0], [2, 4, 7, 3]]


def test_a_text_that_only_a_missing_build_would_fit_is_not_truncated() -> None:
    lengths = lengths_of(PLAIN, INPUTS, 1, 1)
    tokenizer, long = load_tokenizer(wordpiece().to_str().encode()), ["fox " * 9]
    with pytest.raises(NotReady, match="text 0 has more than 8 tokens"):
        tokenize(tokenizer, long, PLAIN, INPUTS, lengths, is_partial=True)
    assert tokenize(tokenizer, long, TextProcessing(max_length=8), INPUTS, lengths, is_partial=True).truncated == [0]
    assert tokenize(tokenizer, ["fox"], PLAIN, INPUTS, lengths, is_partial=True).truncated == []


def test_only_buckets_for_so_many_texts_are_used() -> None:
    assert tokens(["fox", "the"], BUCKETS).tensors[0].shape == (2, 8)
    with pytest.raises(InvalidTensor, match="the request has 3 texts"):
        tokens(["fox"] * 3, BUCKETS)


PAIR = ("the quick fox", "the brown fox jumps over the fox")


def test_a_pair_has_the_types_of_its_texts() -> None:
    found = tokens([("the fox", "é")])
    assert rows(found) == [[[2, 4, 7, 3, 12, 3, 0, 0]], [[1, 1, 1, 1, 1, 1, 0, 0]], [[0, 0, 0, 0, 1, 1, 0, 0]]]
    assert (found.tokens, found.truncated) == ([6], [])


@pytest.mark.parametrize(
    ("truncation", "side", "ids", "types"),
    [
        (None, None, [2, 4, 5, 3, 4, 6, 7, 3], [0, 0, 0, 0, 1, 1, 1, 1]),
        (Truncation.LONGEST_FIRST, Side.LEFT, [2, 5, 7, 3, 11, 4, 7, 3], [0, 0, 0, 0, 1, 1, 1, 1]),
        (Truncation.ONLY_SECOND, Side.RIGHT, [2, 4, 5, 7, 3, 4, 6, 3], [0, 0, 0, 0, 0, 1, 1, 1]),
    ],
)
def test_a_long_pair_is_truncated(
    truncation: Truncation | None, side: Side | None, ids: list[int], types: list[int]
) -> None:
    processing = TextProcessing(truncation=truncation, truncation_side=side)
    found = tokens([PAIR], processing=processing)
    assert (rows(found)[0], rows(found)[2], found.truncated) == ([ids], [types], [0])


@pytest.mark.parametrize("make", [wordpiece, byte_level, unigram])
@pytest.mark.parametrize("truncation", list(Truncation))
@pytest.mark.parametrize("side", list(Side))
def test_pairs_are_truncated_as_the_package_does(
    make: Callable[[], Tokenizer], truncation: Truncation, side: Side
) -> None:
    (spec,) = [TokenSpec("input_ids", "INT64", ((1, 64),))]
    texts = [" ".join(["the quick fox jumps"] * count) for count in (0, 1, 2, 4, 9)]
    processing = TextProcessing(max_length=24, truncation=truncation, truncation_side=side)
    reference = make()
    reference.enable_truncation(24, strategy=truncation.value, direction=side.value)
    for pair in itertools.product(texts, texts):
        try:
            expected = reference.encode(*pair).ids
        except Exception:
            with pytest.raises(InvalidInput, match="tokens fit"):
                tokens([pair], [spec], processing, tokenizer=make())
            continue
        found = tokens([pair], [spec], processing, tokenizer=make())
        assert found.tensors[0][0, : found.tokens[0]].tolist() == expected


def test_a_long_pair_takes_no_more_memory_than_its_tokens() -> None:
    """The package's own truncation creates the combinations of all removed parts: here 10**8 sequences."""
    (spec,) = [TokenSpec("input_ids", "INT64", ((1, 8),))]
    found = tokens([("fox " * 50_000, "the " * 50_000)], [spec])
    assert rows(found) == [[[2, 7, 7, 3, 4, 4, 4, 3]]]


def test_padding_may_come_first_and_have_another_id() -> None:
    processing = TextProcessing(padding_side=Side.LEFT, pad_id=5)
    assert rows(tokens(["fox"], processing=processing))[:2] == [[[5, 5, 5, 5, 5, 2, 7, 3]], [[0, 0, 0, 0, 0, 1, 1, 1]]]


def test_inputs_with_other_names_get_the_data_that_the_metadata_names() -> None:
    inputs = [TokenSpec("place", "INT64", ((1, 4),)), TokenSpec("what", "INT64", ((1, 4),))]
    processing = TextProcessing(inputs={"place": TokenInput.POSITIONS, "what": TokenInput.IDS})
    assert rows(tokens(["fox"], inputs, processing)) == [[[0, 1, 2, 0]], [[2, 7, 3, 0]]]


def test_a_prompt_comes_first_and_spaces_are_removed() -> None:
    processing = TextProcessing(prompts={"query": " the quick "}, default_prompt="query", strips=True)
    assert rows(tokens(["fox "], processing=processing))[0] == [[2, 4, 5, 7, 3, 0, 0, 0]]
    assert rows(tokens([("fox", " fox ")], processing=processing))[0] == [[2, 4, 5, 7, 3, 7, 3, 0]]


@pytest.mark.parametrize("make", [wordpiece, byte_level, unigram])
def test_ids_are_those_of_the_package(make: Callable[[], Tokenizer]) -> None:
    text = "The fox jumps over é 狐 \x00🦊"
    (spec,) = [TokenSpec("input_ids", "INT64", ((1, 64),))]
    found = tokens([text], [spec], tokenizer=make())
    expected = make().encode(text).ids
    assert found.tensors[0][0, : len(expected)].tolist() == expected
    assert found.tokens == [len(expected)]


def test_a_model_whose_inputs_are_no_tokens_is_refused() -> None:
    for spec in (TokenSpec("image", "INT64", ((1, 8),)), TokenSpec("input_ids", "FP32", ((1, 8),))):
        with pytest.raises(InvalidTensor):
            tokens(["fox"], [spec])
    with pytest.raises(InvalidTensor, match=r"of shape \[8\]"):
        tokens(["fox"], [TokenSpec("input_ids", "INT64", ((8,),))])


def test_texts_are_split_by_their_lengths() -> None:
    texts = ["", "fox", "é"]
    data = b"".join(struct.pack("<I", len(each.encode())) + each.encode() for each in texts)
    assert split_texts(data) == texts
    with pytest.raises(InvalidInput, match="text 0 is not UTF-8 at byte 1"):
        split_texts(struct.pack("<I", 2) + b"a\xff")
    assert split_texts(data + data, are_pairs=True) == [(each, each) for each in texts]
    with pytest.raises(InvalidInput, match="text_pair 0 is not UTF-8 at byte 0"):
        split_texts(struct.pack("<II", 0, 1) + b"\xff", are_pairs=True)
    with pytest.raises(TooLarge, match="text 0 has 1048577 bytes"):
        split_texts(struct.pack("<I", MAX_TEXT_BYTES + 1) + bytes(MAX_TEXT_BYTES + 1))


@pytest.mark.parametrize(
    ("text", "processing", "words"),
    [
        ("the fox", PLAIN, ["the", "fox"]),
        (" \t the  fox ", TextProcessing(strips=True), ["the", "fox"]),
        ("the fox", TextProcessing(prompts={"q": "over the "}, default_prompt="q"), ["the", "fox"]),
        ("the fox", TextProcessing(prompts={"q": " over "}, default_prompt="q", strips=True), ["the", "fox"]),
        ("x", TextProcessing(prompts={"q": "fo"}, default_prompt="q"), ["x"]),
        ("\u0130 FOX", TextProcessing(lowercases=True), ["\u0130", "FOX"]),  # lower() makes two characters of the first
    ],
)
def test_positions_are_those_in_the_given_text(text: str, processing: TextProcessing, words: list[str]) -> None:
    lengths = lengths_of(processing, INPUTS, 1, 1)
    tokenizer = load_tokenizer(wordpiece().to_str().encode())
    found = tokenize(tokenizer, [text], processing, INPUTS, lengths, with_offsets=True)
    (offsets,) = found.offsets
    assert [text[begin:end] for begin, end in offsets if begin >= 0] == words
    assert offsets[0] == offsets[-1] == NOWHERE
    assert format_offsets(found.offsets).split(",")[:2] == ["-1", "-1"]


def test_the_tensors_follow_each_other() -> None:
    assert bytes_of([np.array([[1]], np.int64), np.array([[2]], np.int32)]) == struct.pack("<qi", 1, 2)
