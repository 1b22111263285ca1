"""The JSON in an archive, and the meaning of its numbers (torch/_export/serde/schema.py)."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn, TypeVar

from service.compiler.importers.archive import Archive
from service.core.errors import MalformedModel, Unsupported

T = TypeVar("T")

_LARGEST_BYTES = 1 << 26
_LARGEST_INTEGER = 1 << 63
_SHOWN = 100

# `ScalarType` -> numpy's name.
DTYPES: dict[int, str] = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    12: "bool",
    13: "bfloat16",
}
# Numbers that JSON does not have -> their text in JSON.
_UNUSUAL = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


def load(archive: Archive, record: str) -> dict[str, Any]:
    """Returns the JSON object in `record`.

    Raises:
        MalformedModel: the record is not a JSON object.
        Unsupported: the record has more bytes than can be read.
    """
    data = archive.read(record)
    if len(data) > _LARGEST_BYTES:
        raise Unsupported(
            f"the exported program has {len(data)} bytes of JSON in {quoted(record)}; the limit is {_LARGEST_BYTES}"
        )
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise MalformedModel(f"the record {quoted(record)} of the archive is not JSON: {type(exc).__name__}") from exc
    if not isinstance(value, dict):
        malformed(f"has no JSON object in {quoted(record)}")
    return value


def field(value: Any, name: str, kind: type[T]) -> T:
    """Returns a member, which must exist and have the type `kind`."""
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
        malformed(f"has no {kind.__name__} {name}")
    return found


def union(value: Any) -> tuple[str, Any]:
    """Returns the only member of a union, and its name."""
    if not isinstance(value, dict) or len(value) != 1:
        malformed("has a union that does not have exactly one member")
    return next(iter(value.items()))


def integer(value: Any) -> int:
    if type(value) is not int or not -_LARGEST_INTEGER <= value < _LARGEST_INTEGER:
        malformed("has a value that is not a 64-bit integer")
    return value


def real(value: Any) -> float:
    if isinstance(value, str) and value in _UNUSUAL:
        return _UNUSUAL[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        malformed("has a value that is not a number")
    try:
        return float(value)
    except OverflowError:
        malformed("has a value that exceeds 64-bit floating point")


def dtype(value: Any) -> str:
    number = integer(value)
    return DTYPES.get(number, f"type {number}")


def dimension(value: Any) -> int | None:
    """Returns a size, or None if it is symbolic."""
    kind, size = union(value)
    return integer(size) if kind == "as_int" else None


def quoted(name: Any) -> str:
    return ascii(str(name)[:_SHOWN])


def malformed(what: str) -> NoReturn:
    raise MalformedModel(f"the exported program {what}")
