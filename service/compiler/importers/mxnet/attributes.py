"""The attributes of an operator: strings that dmlc's parameter structures print and parse."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NoReturn

from service.core.errors import MalformedModel, Unsupported

_MOST = (1 << 31) - 1
_LONGEST = 1 << 10
_INTEGER = re.compile(r"[+-]?\d{1,10}L?")
_TRUE, _FALSE = ("True", "true", "1"), ("False", "false", "0")
_NONE = "None"


class Attributes:
    """The attributes of a node. Every method raises `MalformedModel` if an attribute cannot be parsed."""

    def __init__(self, values: Mapping[str, str], label: str) -> None:
        self._values, self._label = values, label

    def text(self, name: str, default: str) -> str:
        return self._values.get(name, default)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._values.get(name)
        if value is None:
            return default
        if value not in _TRUE + _FALSE:
            self._fail(name, "True or False")
        return value in _TRUE

    def integer(self, name: str, default: int, least: int = 1) -> int:
        value = self._values.get(name)
        return default if value is None else self._integer(name, value, least)

    def real(self, name: str) -> float | None:
        """Returns a finite number, or None if the attribute is missing."""
        value = self._values.get(name)
        if value is None or value == _NONE:
            return None
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self._fail(name, "a finite number")
        return number

    def pair(self, name: str, default: tuple[int, int], least: int = 1) -> tuple[int, int]:
        """Returns a pair of integers, for rows and columns."""
        values = self.integers(name, least)
        if not values:
            return default
        if len(values) != 2:
            raise Unsupported(
                f"{self._label} has {len(values)} dimensions in its attribute {name}; only 2 can be compiled",
                op=self._label,
            )
        return values[0], values[1]

    def integers(self, name: str, least: int) -> tuple[int, ...]:
        """Returns a tuple of integers, or () if the attribute is missing."""
        value = self._values.get(name, "()").strip()
        if value == _NONE:
            return ()
        if len(value) > _LONGEST or value[:1] + value[-1:] not in ("()", "[]"):
            self._fail(name, "a tuple of integers")
        parts = [part.strip() for part in value[1:-1].split(",")]
        return tuple(self._integer(name, part, least) for part in parts if part)

    def _integer(self, name: str, value: str, least: int) -> int:
        if not _INTEGER.fullmatch(value):
            self._fail(name, "an integer")
        number = int(value.rstrip("L"))
        if not least <= number <= _MOST:
            self._fail(name, f"{least} or more")
        return number

    def _fail(self, name: str, what: str) -> NoReturn:
        value = self._values[name]
        shown = value if len(value) <= 40 else value[:39] + "…"
        raise MalformedModel(f"{self._label} has the attribute {name} {shown!a}, not {what}", op=self._label)
