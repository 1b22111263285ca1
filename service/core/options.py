"""Options of a build besides target and numerics mode. They are part of the build's key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from service.core.errors import InvalidInput

MAX_BATCH = 64
LEAST_TUNE_S, MOST_TUNE_S = 1.0, 3600.0
BATCH, INPUT_SHAPES, TUNE = "batch", "input_shapes", "tune_s"
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
_MOST_RANK = 8


def batch_of(options: Mapping[str, Any]) -> int:
    """The number of samples that the artifact takes at a time."""
    return int(options.get(BATCH, 1))


def with_batch(batch: int) -> dict[str, Any]:
    """The options of a build for `batch` samples; of one sample they are none, as before there were others."""
    return {} if batch == 1 else {BATCH: batch}


def shapes_of(options: Mapping[str, Any]) -> dict[str, list[int]]:
    """Shapes of inputs by name, for files that do not say them; "" stands for the only input."""
    return {str(name): [int(size) for size in shape] for name, shape in options.get(INPUT_SHAPES, {}).items()}


def with_shapes(shapes: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """The options of a build whose inputs have `shapes`."""
    return {INPUT_SHAPES: {name: list(shape) for name, shape in shapes.items()}} if shapes else {}


def parse_shapes(text: str) -> dict[str, list[int]]:
    """`x=1,3,224,224;y=1,10` -> shapes by name; the name of the only input may be left out.

    Raises:
        InvalidInput: it is no list of shapes.
    """
    shapes: dict[str, list[int]] = {}
    for part in filter(None, text.split(";")):
        name, _, sizes = part.rpartition("=")
        numbers = [size.strip() for size in sizes.split(",")]
        if len(numbers) > _MOST_RANK or not all(n.isascii() and n.isdecimal() and len(n) < 10 for n in numbers):
            raise InvalidInput(f"{part!r} is not a shape", hint="write it like x=1,3,224,224")
        shapes[name.strip()] = [int(number) for number in numbers]
    return shapes


def parse_batches(text: str) -> tuple[int, ...]:
    """`1,8,16` -> the sizes, ascending, each once; 1 is always among them.

    Raises:
        InvalidInput: it is no list of sizes.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 6 for part in parts):
        raise InvalidInput(f"{text!r} is not a list of batch sizes", hint="write it like 1,8,16")
    return check_batches(map(int, parts))


def check_batches(sizes: Iterable[int]) -> tuple[int, ...]:
    """As `parse_batches`, of numbers."""
    batches = sorted({1, *sizes})
    if not 1 <= batches[0] <= batches[-1] <= MAX_BATCH:
        raise InvalidInput(f"batch sizes are 1 to {MAX_BATCH}, not {', '.join(map(str, batches))}")
    return tuple(batches)


def tune_s_of(options: Mapping[str, Any]) -> float | None:
    """The time to search for better tiles, in seconds; None for no search."""
    seconds = options.get(TUNE)
    return None if seconds is None else float(seconds)


def with_tuning(options: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    return {**options, TUNE: seconds}


def without_tuning(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the build that is tuned."""
    return {name: value for name, value in options.items() if name != TUNE}


def parse_tune(text: str) -> float:
    """`60s`, `2m` or `60` -> seconds.

    Raises:
        InvalidInput: it is no time, or too short or too long.
    """
    number, unit = (text[:-1], _UNITS_S[text[-1]]) if text[-1:] in _UNITS_S else (text, 1.0)
    if not number.isascii() or not number.isdecimal() or len(number) > 6:
        raise InvalidInput(f"{text!r} is not a tuning time", hint="write it like 60s or 2m")
    return check_tune(int(number) * unit)


def check_tune(seconds: float) -> float:
    """As `parse_tune`, of a number."""
    if not LEAST_TUNE_S <= seconds <= MOST_TUNE_S:
        raise InvalidInput(f"a build is tuned for {LEAST_TUNE_S:g} to {MOST_TUNE_S:g} s, not {seconds:g}")
    return seconds
