"""Parses the text form of quantized types of MLIR's `quant` dialect (its TypeParser.cpp gives the grammar).

    type       ::= `!quant.uniform<` storage `:` expressed (`:` (axis | `{` sizes `}`))? `,` parameters `>`
    storage    ::= (`i` | `u`) width (`<` integer `:` integer `>`)?
    expressed  ::= `f16` | `bf16` | `f32` | `f64`
    sizes      ::= (dimension `:` size (`,` dimension `:` size)*)?
    parameters ::= point | `{` parameters (`,` parameters)* `}`
    point      ::= scale (`:` zero point)?

    !quant.uniform<i8:f32, 2.0:10>
    !quant.uniform<i8<-127:127>:f32:1, {2.0:10,3.0:20}>
    !quant.uniform<i8:f32:{0:1,1:2}, {{2.0:10,3.0},{4.0,5.0:1}}>

`i64` storage is an extension of this project: MLIR stops at 32 bits. The text is untrusted: each error names the
column, nesting is limited, and no number has more than 20 digits before it is converted.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NoReturn

from service.compiler.qnn.types import EXPRESSED_RANGES, SHORT, STORAGE_RANGES, InvalidQuantizedType, QuantizedType

_STORAGES = {SHORT[dtype]: dtype for dtype in STORAGE_RANGES}
_EXPRESSED = {SHORT[dtype]: dtype for dtype in EXPRESSED_RANGES}

_SPACE = re.compile(r"[ \t]*")
_NAME = re.compile(r"[a-z]+[0-9]{1,3}\b")
_INTEGER = re.compile(r"-?[0-9]{1,20}\b")
_SCALE = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{0,40})?(?:[eE][+-]?[0-9]{1,4})?(?![\w.])")
_DEEPEST = 16
_MOST_SHOWN = 60  # characters of a text in a message

Point = tuple[float, int]


@lru_cache(maxsize=4096)
def parse(text: str) -> QuantizedType:
    """Parses the text form of a quantized type.

    Raises:
        InvalidQuantizedType: `text` is not a quantized type, or the type breaks a rule.
    """
    return _Parser(text.strip()).type()


@lru_cache(maxsize=4096)
def parse_normalized(text: str) -> QuantizedType:
    """Parses the text form of a quantized type, and returns the type in its simplest form.

    Raises:
        InvalidQuantizedType: as for `parse`.
    """
    return parse(text).normalized()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text, self._position = text, 0

    def type(self) -> QuantizedType:
        self._expect("!quant.uniform<")
        storage = self._name(_STORAGES, "a storage type i2 to i16, u2 to u16, i32 or i64")
        low, high = self._bounds() if self._accept("<") else (None, None)
        self._expect(":")
        expressed = self._name(_EXPRESSED, "an expressed type f16, bf16, f32 or f64")
        axis, blocks = None, None
        if self._accept(":"):
            if self._accept("{"):
                blocks = self._sizes()
            else:
                axis = self._integer("a quantized dimension or block sizes")
        self._expect(",")
        points: list[Point] = []
        grid = self._parameters(points, None if blocks is not None else int(axis is not None), 0)
        self._expect(">")
        if self._position < len(self._text):
            self._fail("the end of the type")
        return QuantizedType(
            storage,
            tuple(scale for scale, _ in points),
            tuple(zero_point for _, zero_point in points),
            axis=axis,
            storage_min=low,
            storage_max=high,
            expressed=expressed,
            blocks=blocks,
            grid=() if blocks is None else grid,
        )

    def _bounds(self) -> tuple[int, int]:
        low = self._integer("the lower storage bound")
        self._expect(":")
        high = self._integer("the upper storage bound")
        self._expect(">")
        return low, high

    def _sizes(self) -> tuple[tuple[int, int], ...]:
        """Parses `0:1, 1:2}` into pairs of a dimension and its block size."""
        found: list[tuple[int, int]] = []
        while not self._accept("}"):
            if found:
                self._expect(",")
            dimension = self._integer("a quantized dimension")
            self._expect(":")
            found.append((dimension, self._integer("a block size")))
        return tuple(found)

    def _parameters(self, points: list[Point], depth: int | None, level: int) -> tuple[int, ...]:
        """Reads a point, or a list in braces, into `points`. Returns the shape of the nesting: () for a point.

        Args:
            depth: the number of braces around each point; None for block sizes, which need at least one brace.
        """
        if depth == 0 or (depth is None and level and not self._is_next("{")):
            points.append(self._point())
            return ()
        self._expect("{")
        if level == _DEEPEST:
            self._fail(f"at most {_DEEPEST} levels of braces")
        inner = None if depth is None else depth - 1
        shapes = {self._parameters(points, inner, level + 1)}
        count = 1
        while self._accept(","):
            shapes.add(self._parameters(points, inner, level + 1))
            count += 1
            if len(shapes) > 1:
                self._fail("lists of equal length, because scales form a grid")
        self._expect("}")
        return (count, *shapes.pop())

    def _point(self) -> Point:
        scale = self._match(_SCALE)
        if scale is None:
            self._fail("a scale")
        return float(scale), self._integer("a zero point") if self._accept(":") else 0

    def _name(self, names: dict[str, str], what: str) -> str:
        start = self._position
        found = self._match(_NAME)
        if found not in names:
            self._position = start
            self._fail(what)
        return names[found]

    def _integer(self, what: str) -> int:
        found = self._match(_INTEGER)
        if found is None:
            self._fail(what)
        return int(found)

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        self._skip_space()
        match = pattern.match(self._text, self._position)
        if match is None:
            return None
        self._position = match.end()
        return match[0]

    def _is_next(self, token: str) -> bool:
        self._skip_space()
        return self._text.startswith(token, self._position)

    def _accept(self, token: str) -> bool:
        found = self._is_next(token)
        self._position += len(token) if found else 0
        return found

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            self._fail(repr(token))

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._position)
        assert match is not None  # the pattern also matches nothing
        self._position = match.end()

    def _fail(self, expected: str) -> NoReturn:
        self._skip_space()
        shown = self._text if len(self._text) <= _MOST_SHOWN else f"{self._text[:_MOST_SHOWN]}…"
        rest = self._text[self._position : self._position + 20]
        found = repr(rest) if rest else "the end of the text"
        raise InvalidQuantizedType(
            f"{shown!r} is not a quantized type: expected {expected} at column {self._position + 1}, not {found}"
        )
