"""The attributes of an operator: strings that dmlc's parameter structures print and parse."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NoReturn

from service.core.errors import MalformedModel, Unsupported

_MOST = (1 << 31) - 1
_LONGEST = 1 << 10
_SHOWN = 40
_INTEGER = re.compile(r"[+-]?\d{1,10}L?")
_FLAGS = {"True": True, "true": True, "1": True, "False": False, "false": False, "0": False}
_NONE = "None"


class Attributes:
    """The attributes of a node. Every method raises `MalformedModel` if an attribute cannot be parsed."""

    def __init__(self, values: Mapping[str, str], label: str) -> None:
        self._values, self._label = values, label

    def text(self, name: str, default: str) -> str:
        return self._values.get(name, default)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._values.get(name, str(default))
        return _FLAGS[value] if value in _FLAGS else self._fail(name, "True or False")

    def integer(self, name: str, default: int, least: int = 1) -> int:
        value = self._values.get(name)
        return default if value is None else self._integer(name, value, least)

    def has(self, name: str) -> bool:
        """Returns true if the attribute is present and is not None."""
        return self._values.get(name, _NONE) != _NONE

    def number(self, name: str, default: float) -> float:
        found = self.real(name)
        return default if found is None else found

    def real(self, name: str) -> float | None:
        """Returns a finite number, or None if the attribute is missing."""
        value = self._values.get(name, _NONE)
        if value == _NONE:
            return None
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        return number if math.isfinite(number) else self._fail(name, "a finite number")

    def pair(self, name: str, default: tuple[int, int], least: int = 1) -> tuple[int, int]:
        """Returns a pair of integers, for rows and columns."""
        values = self.integers(name, least) or default
        if len(values) != 2:
            what = f"has {len(values)} dimensions in its attribute {name}; only 2 can be compiled"
            raise Unsupported(f"{self._label} {what}", op=self._label)
        return values[0], values[1]

    def integers(self, name: str, least: int) -> tuple[int, ...]:
        """Returns a tuple of integers, or () if the attribute is missing."""
        value = self._values.get(name, _NONE).strip()
        if value == _NONE:
            return ()
        if len(value) > _LONGEST or value[:1] + value[-1:] not in ("()", "[]"):
            self._fail(name, "a tuple of integers")
        parts = [part.strip() for part in value[1:-1].split(",")]
        return tuple(self._integer(name, part, least) for part in parts if part)

    def open_integers(self, name: str) -> tuple[int | None, ...]:
        """Returns a tuple whose elements are integers or None, or () if the attribute is missing."""
        value = self._values.get(name, _NONE).strip()
        if value == _NONE:
            return ()
        if len(value) > _LONGEST or value[:1] + value[-1:] not in ("()", "[]"):
            self._fail(name, "a tuple of integers")
        parts = [part.strip() for part in value[1:-1].split(",")]
        return tuple(None if part == _NONE else self._integer(name, part, -_MOST) for part in parts if part)

    def _integer(self, name: str, value: str, least: int) -> int:
        number = int(value.rstrip("L")) if _INTEGER.fullmatch(value) else self._fail(name, "an integer")
        return number if least <= number <= _MOST else self._fail(name, f"{least} or more")

    def _fail(self, name: str, what: str) -> NoReturn:
        value = self._values[name]
        shown = value if len(value) <= _SHOWN else value[: _SHOWN - 1] + "…"
        raise MalformedModel(f"{self._label} has the attribute {name} {shown!a}, not {what}", op=self._label)
