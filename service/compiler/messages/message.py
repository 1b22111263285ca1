"""The base class of messages between processes: frozen dataclasses that are sent as JSON objects.

The name of a field is the key of its member. The type of a field can be `str`, `bool`, `int`, `float`, `Path` (a string
in JSON), `Any` (not checked), a union with None, `tuple[T, ...]`, a tuple of fixed length, `Sequence[T]`, `Mapping[str,
T]`, another dataclass, or a class with methods `to_json` and `from_json`. `Annotated[int, LEAST_0]` rejects negative
numbers.

Members of the JSON object for which the class has no field are ignored. A field whose default and value are both None
is omitted from the JSON.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar, Union, cast, get_args, get_origin, get_type_hints

LEAST_0 = object()  # marks a number that must not be negative
Count = Annotated[int, LEAST_0]
Seconds = Annotated[float, LEAST_0]

T = TypeVar("T")


class Malformed(ValueError):
    """A message does not have the form of its class. The text contains the name of the member, but not its value."""


class Message:
    """The base class of messages. Subclasses are frozen dataclasses."""

    def to_json(self) -> dict[str, Any]:
        return _fields_to_json(self)

    @classmethod
    def from_json(cls, members: Any) -> Self:
        """Parses the result of `to_json`.

        Raises:
            Malformed: a member is missing or has another type.
            OctetError: raised by `from_json` of a field's class.
        """
        return _read_dataclass(cls, members, "")


def _to_json(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "to_json"):
        return value.to_json()
    if dataclasses.is_dataclass(value):
        return _fields_to_json(value)
    if isinstance(value, Mapping):
        return {name: _to_json(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [_to_json(each) for each in value]
    return value


def _fields_to_json(message: Any) -> dict[str, Any]:
    members = {}
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if value is not None or field.default is not None:
            members[field.name] = _to_json(value)
    return members


@cache
def _types_of(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)


def _read_dataclass(cls: type[T], members: Any, path: str) -> T:
    values: dict[str, Any] = {}
    types_ = _types_of(cast(Any, cls))
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        name = f"{path}.{field.name}" if path else field.name
        if field.name in _object(members, path or "the message"):
            values[field.name] = _read(types_[field.name], members[field.name], name)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise Malformed(f"{name} is missing")
    return cls(**values)


def _read(expected: Any, value: Any, path: str) -> Any:
    """Returns `value` as the type `expected`. Raises `Malformed`."""
    origin, arguments = get_origin(expected), get_args(expected)
    if expected is Any:
        return value
    if origin is Annotated:
        return _read_not_negative(arguments[0], value, path)
    if origin in (Union, types.UnionType):
        (some,) = (each for each in arguments if each is not types.NoneType)
        return None if value is None else _read(some, value, path)
    if origin is tuple and arguments[-1] is not ...:
        return _read_pieces(arguments, value, path)
    if origin in (tuple, Sequence):
        return tuple(_read(arguments[0], each, f"{path}[{at}]") for at, each in enumerate(_array(value, path)))
    if origin is Mapping:
        return {str(name): _read(arguments[1], each, f"{path}.…") for name, each in _object(value, path).items()}
    if expected in _PLAIN:
        return _PLAIN[expected](value, path)
    if hasattr(expected, "from_json"):
        return _read_with(expected.from_json, value, path)
    return _read_dataclass(expected, value, path)


def _read_not_negative(expected: Any, value: Any, path: str) -> Any:
    number = _read(expected, value, path)
    if number < 0:
        raise Malformed(f"{path} is negative")
    return number


def _read_pieces(expected: Sequence[Any], value: Any, path: str) -> tuple[Any, ...]:
    if len(_array(value, path)) != len(expected):
        raise Malformed(f"{path} does not have {len(expected)} elements")
    pairs = zip(expected, value, strict=True)
    return tuple(_read(each, element, f"{path}[{at}]") for at, (each, element) in enumerate(pairs))


def _read_with(read: Callable[[Any], T], value: Any, path: str) -> T:
    try:
        return read(value)
    except Malformed as error:
        raise Malformed(f"{path}: {error}") from error
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise Malformed(f"{path} cannot be read") from error


def _object(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Malformed(f"{path} is not an object")
    return value


def _array(value: Any, path: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise Malformed(f"{path} is not an array")
    return value


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise Malformed(f"{path} is not a string")
    return value


def _path(value: Any, path: str) -> Path:
    return Path(_text(value, path))


def _flag(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise Malformed(f"{path} is not true or false")
    return value


def _integer(value: Any, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Malformed(f"{path} is not an integer")
    return value


def _number(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -math.inf < value < math.inf:
        raise Malformed(f"{path} is not a finite number")
    try:
        return float(value)
    except OverflowError as error:
        raise Malformed(f"{path} is not a finite number") from error


_PLAIN: Mapping[Any, Callable[[Any, str], Any]] = {
    str: _text,
    Path: _path,
    bool: _flag,
    int: _integer,
    float: _number,
}
