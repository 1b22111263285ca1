"""Strict parsing of security-relevant JSON such as signed statements: every parser must find the same meaning in it."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from service.core.errors import InvalidInput


def parse_strict(data: bytes, most_bytes: int, what: str) -> Any:
    """Parses a JSON text in UTF-8 (RFC 8259), without duplicate members, NaN or infinities.

    Args:
        most_bytes: the size limit, which is checked before parsing.
        what: the name of the text, for error messages.

    Raises:
        InvalidInput: `data` is too large, too deeply nested, or not well formed.
    """
    if len(data) > most_bytes:
        raise InvalidInput(f"{what} has {len(data)} bytes, more than {most_bytes}")
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_object, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise InvalidInput(f"{what} is not well-formed JSON: {error}") from error


def members(value: Any, what: str) -> dict[str, Any]:
    """Returns `value` if it is an object. Otherwise raises `InvalidInput`."""
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} is not a JSON object")
    return value


def text(value: Any, what: str, most_characters: int = 4096) -> str:
    """Returns `value` if it is a string that can be shown in a line. Otherwise raises `InvalidInput`."""
    if not isinstance(value, str) or len(value) > most_characters or not value.isprintable():
        raise InvalidInput(f"{what} is not a printable string of at most {most_characters} characters")
    return value


def items(value: Any, what: str, most: int) -> list[Any]:
    """Returns `value` if it is an array of 1 to `most` elements. Otherwise raises `InvalidInput`."""
    if not isinstance(value, list) or not 1 <= len(value) <= most:
        raise InvalidInput(f"{what} is not an array of 1 to {most} elements")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a member occurs twice")
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")
