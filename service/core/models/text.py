"""The processing of text before and after a model: tokenizer, prompts, pooling, normalization."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from service.core.digest import Digest, parse_digest
from service.core.errors import InvalidInput
from service.core.printable import printable

MAX_TOKENIZER_BYTES = 64 << 20  # the largest vocabularies in use (256,000 pieces) take 34 MB
MAX_TOKENS = 1 << 20
_MAX_ENTRIES = 64  # the limit for prompts, and for inputs
_MAX_CHARACTERS = 4096  # the limit for a prompt, and for the name of a tensor


class Pooling(StrEnum):
    """The ways to combine the vectors of a text's tokens into one vector. Padding tokens never count.
    `service.runtime.results.pooling` defines their arithmetic.
    """

    MEAN = "mean"
    MAX = "max"  # of each element
    CLS = "cls"  # the vector of the first token
    LAST = "last"  # the vector of the last token
    MEAN_SQRT = "mean-sqrt"  # the sum, divided by the square root of the number of tokens
    WEIGHTED_MEAN = "weighted-mean"  # the first token counts once, the second twice, …


def parse_pooling(text: str) -> tuple[Pooling, ...]:
    """Parses one way to pool, such as `mean`, or several whose vectors are joined, such as `cls+mean`.

    Raises:
        InvalidInput: `text` is not of that form.
    """
    try:
        found = tuple(Pooling(part) for part in text.split("+"))
    except ValueError as error:
        raise InvalidInput(
            f"{printable(text)!r} is not a pooling", hint=f"{', '.join(Pooling)}, or several as in cls+mean"
        ) from error
    if len(set(found)) != len(found):
        raise InvalidInput(f"the pooling {text!r} contains one way twice", hint="name each way once")
    return found


class Side(StrEnum):
    """The end of a text at which padding tokens are added, or tokens are removed."""

    LEFT = "left"
    RIGHT = "right"


class Truncation(StrEnum):
    """The text of a pair that loses tokens if both together are too long, as transformers defines it."""

    LONGEST_FIRST = "longest_first"  # the longer one, until both have the same length; then both in turn
    ONLY_FIRST = "only_first"
    ONLY_SECOND = "only_second"


class TokenInput(StrEnum):
    """The data that an input of a text model receives, `[texts, tokens]`."""

    IDS = "ids"  # the token ids
    MASK = "mask"  # 1 for a token of the text, 0 for padding
    TYPES = "types"  # 0 for the first text of a pair, 1 for the second
    POSITIONS = "positions"  # 0, 1, 2, …; padding does not count


# The names that exporters of text models give to their inputs.
_USUAL_INPUTS: Mapping[str, TokenInput] = {
    "input_ids": TokenInput.IDS,
    "attention_mask": TokenInput.MASK,
    "token_type_ids": TokenInput.TYPES,
    "position_ids": TokenInput.POSITIONS,
}


@dataclass(frozen=True)
class TextProcessing:
    """The processing of text of a model version. Members may be missing.

    Attributes:
        tokenizer: the digest of the tokenizer's file, `tokenizer.json` of the package `tokenizers`. The store keeps the
            file as long as a version has it.
        tokenizer_bytes: the size of that file; 0 without a tokenizer.
        max_length: the maximum number of tokens in a text or a pair, including special tokens. Longer ones are
            truncated.
        truncation: the text of a pair that is truncated; `longest_first` if missing.
        truncation_side: the end at which tokens are removed; `right` if missing.
        padding_side: the end at which shorter texts of a batch are padded; `right` if missing.
        pad_id: the token id of padding; 0 if missing.
        inputs: the data of each input, by the input's name. Inputs with the usual names need no entry.
        output: the name of the output that contains the result; if empty, the first output does.
        pooling: how `[texts, tokens, size]` becomes `[texts, size]`. The vectors of several ways are joined in this
            order. Empty if the output already has one row per text.
        normalize: true if each vector is divided by its Euclidean norm.
        prompts: the texts to put before a text, by the name of their purpose, such as `query`.
        default_prompt: the name of the prompt that is used if a request names none; empty for no prompt.
        strips: true if white space around a text is removed before it is tokenized.
        lowercases: true if a text is converted to lower case before it is tokenized, in addition to the tokenizer's own
            normalization.
    """

    tokenizer: Digest | None = None
    tokenizer_bytes: int = 0
    max_length: int | None = None
    padding_side: Side | None = None
    pad_id: int | None = None
    inputs: Mapping[str, TokenInput] = field(default_factory=dict, hash=False)
    output: str = ""
    pooling: tuple[Pooling, ...] = ()
    normalize: bool | None = None
    prompts: Mapping[str, str] = field(default_factory=dict, hash=False)
    default_prompt: str = ""
    strips: bool | None = None
    lowercases: bool | None = None
    truncation: Truncation | None = None
    truncation_side: Side | None = None

    def __post_init__(self) -> None:
        """Raises `InvalidInput` if a member has an invalid value."""
        if self.tokenizer is None and self.tokenizer_bytes:
            raise InvalidInput(f"the tokenizer is missing, but its size is {self.tokenizer_bytes} bytes")
        if not 0 <= self.tokenizer_bytes <= MAX_TOKENIZER_BYTES:
            raise InvalidInput(
                f"the tokenizer has {self.tokenizer_bytes} bytes, but the limit is {MAX_TOKENIZER_BYTES}"
            )
        if self.max_length is not None and not 1 <= self.max_length <= MAX_TOKENS:
            raise InvalidInput(f"max_length is {self.max_length}", hint=f"it has to be from 1 to {MAX_TOKENS}")
        if self.pad_id is not None and not 0 <= self.pad_id < 1 << 31:
            raise InvalidInput(f"pad_id is {self.pad_id}, but token ids are from 0 to {(1 << 31) - 1}")
        _check_texts("inputs", self.inputs)
        _check_texts("prompts", self.prompts)
        if len(self.output) > _MAX_CHARACTERS:
            raise InvalidInput(f"the name of the output has {len(self.output)} characters")
        if self.default_prompt and self.prompts and self.default_prompt not in self.prompts:
            raise InvalidInput(
                f"the default prompt is {self.default_prompt!r}, but no prompt has that name",
                hint=f"the prompts are: {', '.join(self.prompts)}",
            )

    def __bool__(self) -> bool:
        """Returns true if any member is set."""
        return self != NO_TEXT

    def __str__(self) -> str:
        """Returns a summary such as `tokenizer, at most 256 tokens, mean pooling, normalized`."""
        parts = [
            "tokenizer" if self.tokenizer else "",
            f"at most {self.max_length} tokens" if self.max_length else "",
            f"{'+'.join(self.pooling)} pooling" if self.pooling else "",
            "normalized" if self.normalize else "",
            f"prompts {', '.join(self.prompts)}" if self.prompts else "",
        ]
        return ", ".join(filter(None, parts))

    def data_of(self, input_name: str) -> TokenInput | None:
        """Returns the data that an input of the model receives, or None if the input is not one of a text model."""
        return self.all_inputs.get(input_name)

    @property
    def all_inputs(self) -> Mapping[str, TokenInput]:
        """The data that each input receives, by its name, with the usual names."""
        return {**_USUAL_INPUTS, **self.inputs}

    def over(self, other: TextProcessing) -> TextProcessing:
        """Returns this processing with missing members taken from `other`. The tokenizer and its size are taken
        together, and so are the prompts and the default prompt.
        """
        merged = {**other.to_json(), **self.to_json()}
        for leader, follower in _TOGETHER.items():
            source = self if getattr(self, leader) else other
            merged |= {leader: getattr(source, leader), follower: getattr(source, follower)}
        return TextProcessing.from_json(merged)

    def without_tokenizer(self) -> TextProcessing:
        """Returns the same processing without the reference to a stored tokenizer."""
        return replace(self, tokenizer=None, tokenizer_bytes=0)

    def to_json(self) -> dict[str, Any]:
        """Returns the members that are set."""
        members = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: _json_of(value) for name, value in members.items() if value != getattr(NO_TEXT, name)}

    @staticmethod
    def from_json(members: Mapping[str, Any]) -> TextProcessing:
        """Parses the result of `to_json`. Raises `InvalidInput` if it is not well formed."""
        parsed: dict[str, Any] = {}
        for name, parse in _PARSERS.items():
            value = members.get(name)
            if value is not None:
                try:
                    parsed[name] = parse(value)
                except (AttributeError, TypeError, ValueError) as error:
                    raise InvalidInput(f"{name} of a model's text processing is not valid: {error}") from error
        return TextProcessing(**parsed)


def _json_of(value: Any) -> Any:
    if isinstance(value, tuple):
        return "+".join(value)
    return dict(value) if isinstance(value, Mapping) else value


def _check_texts(what: str, texts: Mapping[str, str]) -> None:
    if len(texts) > _MAX_ENTRIES:
        raise InvalidInput(f"there are {len(texts)} {what}, but the limit is {_MAX_ENTRIES}")
    for name, value in texts.items():
        if len(name) > _MAX_CHARACTERS or len(value) > _MAX_CHARACTERS:
            raise InvalidInput(f"one of the {what} has more than {_MAX_CHARACTERS} characters")


def _parse_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


def _parse_whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _parse_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is not true or false")
    return value


def _parse_digest(value: Any) -> Digest:
    return parse_digest(_parse_text(value))


_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "tokenizer": _parse_digest,
    "tokenizer_bytes": _parse_whole,
    "max_length": _parse_whole,
    "padding_side": Side,
    "pad_id": _parse_whole,
    "inputs": lambda value: {_parse_text(name): TokenInput(data) for name, data in value.items()},
    "output": _parse_text,
    "pooling": lambda value: parse_pooling(_parse_text(value)),
    "normalize": _parse_flag,
    "prompts": lambda value: {_parse_text(name): _parse_text(prompt) for name, prompt in value.items()},
    "default_prompt": _parse_text,
    "strips": _parse_flag,
    "lowercases": _parse_flag,
    "truncation": Truncation,
    "truncation_side": Side,
}


NO_TEXT = TextProcessing()
_TOGETHER: Mapping[str, str] = {"tokenizer": "tokenizer_bytes", "prompts": "default_prompt"}
