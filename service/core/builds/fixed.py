"""The build option `fixed_inputs`: inputs of the model file that the build replaces by constants.

The values are part of the build's key. Clients do not send such inputs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from service.core.errors import InvalidInput

FIXED = "fixed_inputs"
MOST_FIXED, MOST_VALUES = 16, 4096
Number = int | float  # includes bool
Fixed = Mapping[str, Sequence[Number]]
T = TypeVar("T")
_TRUTH = {"true": True, "false": False}
_INTEGER = re.compile(r"[+-]?\d{1,20}", re.ASCII)
_REAL = re.compile(r"[+-]?(\d{1,40}\.?\d{0,40}|\.\d{1,40})(e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)


def fixed_of(options: Mapping[str, Any]) -> dict[str, list[Number]]:
    """Returns the values of the fixed inputs, by name."""
    return {str(name): list(values) for name, values in options.get(FIXED, {}).items()}


def with_fixed(options: Mapping[str, Any], fixed: Fixed) -> dict[str, Any]:
    """Returns the options of a build whose inputs `fixed` have these values."""
    return {**options, **({FIXED: {name: list(values) for name, values in fixed.items()}} if fixed else {})}


def without_fixed(shapes: Mapping[str, T], fixed: Fixed) -> dict[str, T]:
    """Returns the shapes of the inputs that are left."""
    return {name: shape for name, shape in shapes.items() if name not in fixed}


def parse_fixed(text: str) -> dict[str, list[Number]]:
    """Parses values such as `sr=16000;mask=1,1,0`, and returns them by input name.

    Raises:
        InvalidInput: `text` is malformed.
    """
    fixed: dict[str, list[Number]] = {}
    for part in filter(None, text.split(";")):
        name, separator, written = part.rpartition("=")
        name = name.strip()
        if not separator or not name:
            raise InvalidInput(f"{part!r} is not a value of an input", hint="write it like sr=16000 or mask=1,1,0")
        if name in fixed:
            raise InvalidInput(f"the input {name!r} has two values in {text!r}", hint="give one for each input")
        fixed[name] = [_number(each.strip(), part) for each in written.split(",")]
    return check_fixed(fixed)


def check_fixed(fixed: Mapping[str, Number | Sequence[Number]]) -> dict[str, list[Number]]:
    """Returns the values as lists. One number stands for a list with this number.

    Raises:
        InvalidInput: a value is not a finite number, or there are too many values.
    """
    found = {name: [values] if isinstance(values, int | float) else list(values) for name, values in fixed.items()}
    if len(found) > MOST_FIXED:
        raise InvalidInput(f"{len(found)} inputs have a fixed value, more than {MOST_FIXED}", hint="fix fewer inputs")
    for name, values in found.items():
        if not name:
            raise InvalidInput("a fixed value needs the name of its input", hint="write it like sr=16000")
        if not 1 <= len(values) <= MOST_VALUES:
            raise InvalidInput(
                f"the input {name!r} gets {len(values)} values, not 1 to {MOST_VALUES}",
                hint="one value fills an input of any shape",
            )
        if not all(isinstance(value, int | float) and math.isfinite(value) for value in values):
            raise InvalidInput(f"a value of the input {name!r} is not a finite number", hint="write it like sr=16000")
    return found


def _number(text: str, part: str) -> Number:
    if text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _REAL.fullmatch(text) and math.isfinite(value := float(text)):
        return value
    raise InvalidInput(f"{text!r} in {part!r} is not a number", hint="write it like sr=16000 or mask=1,1,0")
