"""The request and the result of the role that describes the configured dialects."""

from __future__ import annotations

from dataclasses import dataclass

from service.compiler.messages.message import Message
from service.compiler.messages.role import Empty, Role


@dataclass(frozen=True)
class Format(Message):
    """A file format of a dialect.

    Attributes:
        heads: the bytes with which files begin, in hexadecimal.
        numerics: the default numerics mode.
    """

    name: str
    heads: tuple[str, ...]
    numerics: str


@dataclass(frozen=True)
class Described(Message):
    """The parts of one dialect.

    Attributes:
        operators: the operators, each with its formula in words.
        patterns, passes: their names.
    """

    name: str
    operators: tuple[str, ...]
    patterns: tuple[str, ...]
    passes: tuple[str, ...]
    formats: tuple[Format, ...]


@dataclass(frozen=True)
class DialectsResult(Message):
    """All dialects, in the order in which they were loaded."""

    dialects: tuple[Described, ...]


DIALECTS = Role("dialects", Empty, DialectsResult)
