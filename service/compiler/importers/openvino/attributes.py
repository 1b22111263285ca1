"""The attributes of a layer: texts in the XML element `data`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NoReturn

from service.core.errors import MalformedModel

_MOST = (1 << 63) - 1
_INTEGER = re.compile(r"[+-]?\d{1,19}")
_FLAGS = {"true": True, "True": True, "1": True, "false": False, "False": False, "0": False}
_MOST_NUMBERS = 1 << 16
_SHOWN = 40


class Attributes:
    """The attributes of a layer. Every method raises `MalformedModel` if an attribute cannot be parsed."""

    def __init__(self, values: Mapping[str, str], label: str) -> None:
        self._values, self.label = values, label

    def has(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name, default)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._values.get(name)
        if value is None:
            return default
        return _FLAGS[value] if value in _FLAGS else self._fail(name, "true or false")

    def integer(self, name: str, default: int | None = None) -> int:
        value = self._values.get(name)
        if value is None:
            return default if default is not None else self._fail(name, "an integer")
        return self._integer(name, value)

    def number(self, name: str, default: float | None = None) -> float:
        """Returns a finite number."""
        value = self._values.get(name)
        if value is None:
            return default if default is not None else self._fail(name, "a number")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        return number if math.isfinite(number) else self._fail(name, "a finite number")

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Returns integers that are separated by commas."""
        value = self._values.get(name)
        if value is None:
            return default if default is not None else self._fail(name, "a list of integers")
        parts = [part.strip() for part in value.split(",")] if value.strip() else []
        if len(parts) > _MOST_NUMBERS:
            self._fail(name, f"at most {_MOST_NUMBERS} integers")
        return tuple(self._integer(name, part) for part in parts)

    def _integer(self, name: str, value: str) -> int:
        number = int(value) if _INTEGER.fullmatch(value.strip()) else self._fail(name, "an integer")
        return number if -_MOST <= number <= _MOST else self._fail(name, "an integer of 64 bits")

    def _fail(self, name: str, what: str) -> NoReturn:
        value = self._values.get(name, "")
        shown = value if len(value) <= _SHOWN else value[: _SHOWN - 1] + "…"
        raise MalformedModel(f"{self.label} has the attribute {name} {shown!a}, not {what}", op=self.label)
