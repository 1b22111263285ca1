"""A partial parser of PromQL. It finds the metrics and labels in a query."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*")|(?P<range>\[[^\]]*\])|(?P<number>\d[\d.e]*[smhd]?)|(?P<name>[a-zA-Z_:][\w:]*)'
    r"|(?P<operator>=~|!~|!=|==|<=|>=|[-+*/%^<>=(){},])|(?P<space>\s+)"
)
_FUNCTIONS = {"sum", "max", "rate", "increase", "changes", "histogram_quantile"}
_OPERATORS = {"and", "or", "unless"}
_MATCHES: Mapping[str, Callable[[str, str], bool]] = {
    "=": lambda wanted, found: wanted == found,
    "!=": lambda wanted, found: wanted != found,
    "=~": lambda wanted, found: re.fullmatch(wanted, found) is not None,
    "!~": lambda wanted, found: re.fullmatch(wanted, found) is None,
}


@dataclass(frozen=True)
class Selector:
    """A metric, and the matchers of its labels: name, operator and value."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(
            label in labels and _MATCHES[operator](wanted, labels[label]) for label, operator, wanted in self.matchers
        )


@dataclass
class Query:
    """The metrics and labels that a query uses.

    Attributes:
        selectors: the metrics and their matchers.
        groups: the labels of its `by` clauses.
    """

    selectors: list[Selector] = field(default_factory=list)
    groups: set[str] = field(default_factory=set)


def parse(text: str) -> Query:
    """Parses a query. Raises `ValueError` if it is malformed, or uses syntax that this parser does not support."""
    tokens = list(_tokens(text))
    query, at = Query(), 0
    while at < len(tokens):
        kind, token = tokens[at]
        following = tokens[at + 1][1] if at + 1 < len(tokens) else ""
        at += 1
        if kind != "name" or token in _OPERATORS:
            continue
        if token == "by":
            labels, at = _list(tokens, at, ")")
            query.groups |= {name for kind, name in labels if kind == "name"}
        elif following in ("(", "by"):
            if token not in _FUNCTIONS:
                raise ValueError(f"unsupported function {token}: {text}")
        elif following == "{":
            matchers, at = _list(tokens, at, "}")
            query.selectors.append(Selector(token, tuple(_matchers(matchers))))
        else:
            query.selectors.append(Selector(token))
    return query


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise ValueError(f"{text[at:]!r} of {text!r} cannot be read")
        at = found.end()
        if found.lastgroup != "space":
            yield found.lastgroup, found[0]


def _list(tokens: Sequence[tuple[str, str]], at: int, end: str) -> tuple[list[tuple[str, str]], int]:
    """Returns the tokens between the bracket at `at` and the next `end`, without commas. Also returns the index after
    `end`.
    """
    close = next(index for index in range(at, len(tokens)) if tokens[index][1] == end)
    return [token for token in tokens[at + 1 : close] if token[1] != ","], close + 1


def _matchers(tokens: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    if len(tokens) % 3:
        raise ValueError(f"{tokens} are not matchers")
    for label, operator, value in zip(tokens[::3], tokens[1::3], tokens[2::3], strict=True):
        yield label[1], operator[1], value[1][1:-1]
