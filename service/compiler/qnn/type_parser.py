"""Parses the text form of quantized types of MLIR's `quant` dialect (its TypeParser.cpp gives the grammar).

    !quant.uniform<i8:f32, 2.0:10>
    !quant.uniform<i8<-127:127>:f32:1, {2.0:10,3.0:20}>
    !quant.uniform<i8:f32:{0:1,1:2}, {{2.0:10,3.0},{4.0,5.0:1}}>

`i64` storage is an extension of this project: MLIR stops at 32 bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from service.compiler.qnn.types import SHORT, InvalidQuantizedType, QuantizedType

_LONG = {short: dtype for dtype, short in SHORT.items()}

_TYPE = re.compile(
    r"!quant\.uniform<(?P<storage>[iu]\d+)(?:<(?P<min>-?\d+):(?P<max>-?\d+)>)?:(?P<expressed>b?f\d+)"
    r"(?::(?:(?P<axis>\d+)|\{(?P<blocks>[\d:, ]*)\}))?, ?(?P<parameters>[^<>]+)>"
)
_TOKEN = re.compile(r"\s*([{},]|[^{},\s]+)\s*")
_DEEPEST = 16

Point = tuple[float, int]


@lru_cache(maxsize=4096)
def parse(text: str) -> QuantizedType:
    """Parses the text form of a quantized type.

    Raises:
        InvalidQuantizedType: `text` is not a quantized type, or the type breaks a rule.
    """
    match = _TYPE.fullmatch(text.strip())
    if not match or match["storage"] not in _LONG or match["expressed"] not in _LONG:
        raise InvalidQuantizedType(f"{text!r} is not a quantized type")
    points, grid = _parameters(match["parameters"], text)
    axis, blocks = match["axis"], match["blocks"]
    if len(grid) != (0 if axis is None and blocks is None else 1) and blocks is None:
        raise InvalidQuantizedType(f"{text!r} has scales that are not nested like its dimensions")
    return QuantizedType(
        _LONG[match["storage"]],
        tuple(scale for scale, _ in points),
        tuple(zero_point for _, zero_point in points),
        axis=None if axis is None else int(axis),
        storage_min=int(match["min"]) if match["min"] else None,
        storage_max=int(match["max"]) if match["max"] else None,
        expressed=_LONG[match["expressed"]],
        blocks=None if blocks is None else _blocks(blocks, text),
        grid=() if blocks is None else grid,
    )


def _blocks(text: str, whole: str) -> tuple[tuple[int, int], ...]:
    """Parses `0:1, 1:2` into pairs of a dimension and its block size."""
    found = []
    for pair in text.split(",") if text.strip() else []:
        match = re.fullmatch(r"\s*(\d+)\s*:\s*(\d+)\s*", pair)
        if match is None:
            raise InvalidQuantizedType(f"{whole!r} has malformed block sizes")
        found.append((int(match[1]), int(match[2])))
    return tuple(found)


def _parameters(text: str, whole: str) -> tuple[list[Point], tuple[int, ...]]:
    """Parses scales and zero points, in order; also returns the shape of their nesting, () for a single pair without
    braces.
    """
    tokens = iter(_TOKEN.findall(text))
    points: list[Point] = []
    grid = _element(next(tokens, ""), tokens, points, whole, 0)
    if next(tokens, None) is not None:
        raise InvalidQuantizedType(f"{whole!r} has text after its scales")
    return points, grid


def _element(token: str, tokens: Iterator[str], points: list[Point], whole: str, depth: int) -> tuple[int, ...]:
    """Reads a pair, or a list of elements in braces, into `points`; returns their shape."""
    if token != "{":
        points.append(_point(token, whole))
        return ()
    if depth == _DEEPEST:
        raise InvalidQuantizedType(f"{whole!r} nests its scales too deeply")
    shapes = [_element(next(tokens, ""), tokens, points, whole, depth + 1)]
    while (separator := next(tokens, "")) == ",":
        shapes.append(_element(next(tokens, ""), tokens, points, whole, depth + 1))
    if separator != "}" or len(set(shapes)) != 1:
        raise InvalidQuantizedType(f"{whole!r} has scales that do not form a grid")
    return (len(shapes), *shapes[0])


def _point(token: str, whole: str) -> Point:
    scale, _, zero_point = token.partition(":")
    try:
        return float(scale), int(zero_point or 0)
    except ValueError as exc:
        raise InvalidQuantizedType(f"{whole!r} has a malformed scale or zero point") from exc
