"""The JSON of an archive, and what its numbers mean (torch/_export/serde/schema.py)."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn, TypeVar

from service.compiler.importers.archive import Archive
from service.core.errors import MalformedModel

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
# How JSON, which has no such numbers, has them.
_UNUSUAL = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


def load(archive: Archive, record: str) -> dict[str, Any]:
    """The JSON object in `record`.

    Raises:
        MalformedModel: there is none.
    """
    data = archive.read(record)
    if len(data) > _LARGEST_BYTES:
        malformed(f"has {len(data)} bytes of JSON in {shown(record)}")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise MalformedModel(f"the record {shown(record)} of the archive is not JSON: {type(exc).__name__}") from exc
    if not isinstance(value, dict):
        malformed(f"has no JSON object in {shown(record)}")
    return value


def field(value: Any, name: str, kind: type[T]) -> T:
    """A member that has to be there, and of type `kind`."""
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
        malformed(f"lacks the {kind.__name__} {name}")
    return found


def union(value: Any) -> tuple[str, Any]:
    """The one member of a union, and its name."""
    if not isinstance(value, dict) or len(value) != 1:
        malformed("has a union without a member, or with several")
    return next(iter(value.items()))


def integer(value: Any) -> int:
    if type(value) is not int or abs(value) >= _LARGEST_INTEGER:
        malformed("has a value other than an integer of 64 bits where it needs one")
    return value


def real(value: Any) -> float:
    if isinstance(value, str) and value in _UNUSUAL:
        return _UNUSUAL[value]
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e308:
        malformed("has a value other than a number where it needs one")
    return float(value)


def dtype(value: Any) -> str:
    number = integer(value)
    return DTYPES.get(number, f"type {number}")


def dimension(value: Any) -> int | None:
    """A size; None for one that is a symbol."""
    kind, size = union(value)
    return integer(size) if kind == "as_int" else None


def shown(name: Any) -> str:
    return ascii(str(name)[:_SHOWN])


def malformed(what: str) -> NoReturn:
    raise MalformedModel(f"the exported program {what}")
