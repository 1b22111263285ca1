"""Options of a build besides target and numerics mode. They are part of the build's key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from service.core.errors import InvalidInput

MAX_BATCH = 256
LEAST_TUNE_S, MOST_TUNE_S = 1.0, 3600.0
BATCH, INPUT_SHAPES, BUCKETS, TUNE = "batch", "input_shapes", "buckets", "tune_s"
ACCEPT = "accept_differences"
MAX_BUCKETS = 16
Shapes = dict[str, list[int]]
OpenShapes = Mapping[str, Sequence[int | Sequence[int]]]
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
_MOST_RANK = 8
_SEPARATOR = re.compile(r"[,x](?![^\[]*\])", re.ASCII)  # outside of brackets
_SIZE = re.compile(r"\d{1,9}|\[\s*\d{1,9}\s*(,\s*\d{1,9}\s*)*\]", re.ASCII)


def batch_of(options: Mapping[str, Any]) -> int:
    """The number of samples that the artifact takes at a time."""
    return int(options.get(BATCH, 1))


def with_batch(batch: int) -> dict[str, Any]:
    """The options of a build for `batch` samples; of one sample they are none, as before there were others."""
    return {} if batch == 1 else {BATCH: batch}


def shapes_of(options: Mapping[str, Any]) -> Shapes:
    """Shapes of inputs by name, for files that do not say them; "" stands for the only input."""
    return {str(name): [int(size) for size in shape] for name, shape in options.get(INPUT_SHAPES, {}).items()}


def buckets_of(options: Mapping[str, Any]) -> list[Shapes]:
    """The shapes of all buckets of the model, ascending, of which the build makes one; nothing where it has none."""
    return [shapes_of({INPUT_SHAPES: each}) for each in options.get(BUCKETS, ())]


def place_of(options: Mapping[str, Any]) -> int:
    """Which of the buckets the build makes; 0 where the model has none."""
    buckets = buckets_of(options)
    return buckets.index(shapes_of(options)) if buckets else 0


def with_shapes(shapes: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """The options of a build whose inputs have `shapes`."""
    return {INPUT_SHAPES: {name: list(shape) for name, shape in shapes.items()}} if shapes else {}


def with_sizes(batches: Sequence[int], shapes: OpenShapes) -> list[dict[str, Any]]:
    """The options of the builds that make one model: one for each batch size or bucket, the smallest first.

    Raises:
        InvalidInput: as `expanded`; or the model is to have batch sizes and buckets.
    """
    buckets = expanded(shapes)
    if len(buckets) == 1:
        return [{**with_batch(batch), **with_shapes(buckets[0])} for batch in batches]
    if tuple(batches) != (1,):
        raise InvalidInput("a model of several shapes takes one sample at a time", hint="leave out the batch sizes")
    return [{**with_shapes(each), BUCKETS: buckets} for each in buckets]


def expanded(shapes: OpenShapes) -> list[Shapes]:
    """`{"x": [1, [16, 32]]}` -> `[{"x": [1, 16]}, {"x": [1, 32]}]`: the first of every list, the second, and so on.

    Raises:
        InvalidInput: the lists differ in length, are too long, or do not ascend.
    """
    lists = [size for shape in shapes.values() for size in shape if not isinstance(size, int)]
    count = len(lists[0]) if lists else 1
    if any(len(each) != count for each in lists):
        raise InvalidInput("lists of sizes differ in length", hint="each bucket takes one size of every list")
    if not 1 <= count <= MAX_BUCKETS or any(list(each) != sorted(set(each)) for each in lists):
        raise InvalidInput(f"a list of sizes has 1 to {MAX_BUCKETS} of them, ascending")
    return [
        {name: [size if isinstance(size, int) else size[place] for size in shape] for name, shape in shapes.items()}
        for place in range(count)
    ]


def parse_shapes(text: str) -> Shapes:
    """As `parse_open_shapes`, of shapes without lists.

    Raises:
        InvalidInput: it is no list of shapes, or one has a list of sizes.
    """
    return {name: [_single(size, text) for size in shape] for name, shape in parse_open_shapes(text).items()}


def _single(size: int | Sequence[int], text: str) -> int:
    if isinstance(size, int):
        return size
    raise InvalidInput(f"{text!r} names several shapes", hint="name one, like x=1,3,224,224")


def parse_open_shapes(text: str) -> dict[str, list[int | list[int]]]:
    """`x=1,3,224,224;y=1x[16,32]` -> shapes by name; the name of the only input may be left out. A list of sizes stands
    for as many buckets.

    Raises:
        InvalidInput: it is no list of shapes.
    """
    shapes: dict[str, list[int | list[int]]] = {}
    for part in filter(None, text.split(";")):
        name, _, written = part.rpartition("=")
        sizes = [size.strip() for size in _SEPARATOR.split(written)]
        if len(sizes) > _MOST_RANK or not all(map(_SIZE.fullmatch, sizes)):
            raise InvalidInput(f"{part!r} is not a shape", hint="write it like x=1,3,224,224 or x=1x[16,32,64]")
        shapes[name.strip()] = [_size(size) for size in sizes]
    return shapes


def _size(text: str) -> int | list[int]:
    return [int(each) for each in text[1:-1].split(",")] if text.startswith("[") else int(text)


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


def accepts_differences(options: Mapping[str, Any]) -> bool:
    """True if the build may be served although it differs from its reference runtime."""
    return options.get(ACCEPT) is True


def with_acceptance(options: Mapping[str, Any], accepts: bool) -> dict[str, Any]:
    """The options of a build that is served although it may differ from its reference, if `accepts`."""
    return {**options, **({ACCEPT: True} if accepts else {})}


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
