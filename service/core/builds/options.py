"""The options of a build other than target and numerics mode. These options are part of the build's key.

An absent option has its default, so that a new option does not change the keys of existing builds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from service.core.builds.fixed import fixed_of, with_fixed
from service.core.errors import InvalidInput

MAX_BATCH = 256
LEAST_TUNE_S, MOST_TUNE_S = 1.0, 3600.0
BATCH, INPUT_SHAPES, BUCKETS, RANGES, TUNE = "batch", "input_shapes", "buckets", "ranges", "tune_s"
ACCEPT = "accept_differences"
COUNTS = "counts"
MAX_BUCKETS = 16
Shapes = dict[str, list[int]]
OpenShapes = Mapping[str, Sequence[int | Sequence[int]]]
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
_MOST_RANK = 8
_SEPARATOR = re.compile(r"[,x](?![^\[]*\])", re.ASCII)  # matches a separator outside of brackets
_SIZE = re.compile(r"(\.\.)?\d{1,9}|\[\s*\d{1,9}\s*(,\s*\d{1,9}\s*)*\]", re.ASCII)
_SHORTEST = 8  # the smallest bucket of a range; a shorter input costs hardly less


def batch_of(options: Mapping[str, Any]) -> int:
    """Returns the number of samples that the artifact takes at a time."""
    return int(options.get(BATCH, 1))


def with_batch(batch: int) -> dict[str, Any]:
    """Returns the options of a build for `batch` samples. For one sample, the result is empty."""
    return {} if batch == 1 else {BATCH: batch}


def shapes_of(options: Mapping[str, Any]) -> Shapes:
    """Returns the input shapes by name, for model files that do not contain the shapes; "" is the name of an only
    input.
    """
    return {str(name): [int(size) for size in shape] for name, shape in options.get(INPUT_SHAPES, {}).items()}


def buckets_of(options: Mapping[str, Any]) -> list[Shapes]:
    """Returns the shapes of all buckets of the model, ascending; empty if the model has no buckets. A build compiles
    the model for one of the buckets.
    """
    return [shapes_of({INPUT_SHAPES: each}) for each in options.get(BUCKETS, ())]


def ranges_of(options: Mapping[str, Any]) -> dict[str, list[int]]:
    """Returns the axes along which the build accepts any size up to that of its shape, by the name of the input."""
    return {str(name): [int(axis) for axis in axes] for name, axes in options.get(RANGES, {}).items()}


def bucket_index_of(options: Mapping[str, Any]) -> int:
    """Returns the index of the bucket that the build compiles the model for; 0 if the model has no buckets."""
    buckets = buckets_of(options)
    return buckets.index(shapes_of(options)) if buckets else 0


def with_shapes(shapes: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Returns the options of a build whose inputs have `shapes`."""
    return {INPUT_SHAPES: {name: list(shape) for name, shape in shapes.items()}} if shapes else {}


def with_sizes(batches: Sequence[int], shapes: OpenShapes, *, binds: bool = True) -> list[dict[str, Any]]:
    """Returns the options of all builds of one model: one for each batch size or bucket, the smallest first.

    Args:
        binds: true if the target accepts ranges of sizes. Otherwise the buckets of `ladder` replace them.

    Raises:
        InvalidInput: both batch sizes and several sizes are requested, or `shapes` is refused by `expanded`.
    """
    ranges = {name: axes for name, shape in shapes.items() if (axes := _ranges(shape))}
    buckets = expanded(shapes if binds else _replace_ranges(shapes, ladder))
    if ranges and tuple(batches) == (1,) and binds:
        if len(buckets) != 1 or len({buckets[0][name][axis] for name, axes in ranges.items() for axis in axes}) != 1:
            raise InvalidInput("the sizes that vary are not the same", hint="write the same range for all of them")
        return [{**with_shapes(buckets[0]), RANGES: ranges}]
    if len(buckets) == 1 and not (ranges and binds):
        return [{**with_batch(batch), **with_shapes(buckets[0])} for batch in batches]
    if tuple(batches) != (1,):
        raise InvalidInput("a model of several shapes takes one sample at a time", hint="leave out the batch sizes")
    return [{**with_shapes(each), BUCKETS: buckets} for each in buckets]


def _ranges(shape: Sequence[int | Sequence[int]]) -> list[int]:
    """Returns the axes of a shape that have a range of sizes."""
    return [axis for axis, size in enumerate(shape) if _limit_of(size)]


def _limit_of(size: int | Sequence[int]) -> int:
    """Returns the largest size of a range; 0 for one size or a list of sizes."""
    return size[1] if not isinstance(size, int) and len(size) == 2 and size[0] == 0 else 0


def _replace_ranges(shapes: OpenShapes, sizes_of: Callable[[int], int | Sequence[int]]) -> OpenShapes:
    """Returns `shapes` with the result of `sizes_of` in place of each range. Its argument is the largest size."""
    return {
        name: [sizes_of(limit) if (limit := _limit_of(size)) else size for size in shape]
        for name, shape in shapes.items()
    }


def expanded(shapes: OpenShapes) -> list[Shapes]:
    """Expands lists of sizes into buckets: `{"x": [1, [16, 32]]}` -> `[{"x": [1, 16]}, {"x": [1, 32]}]`.

    The first bucket has the first size of every list, the second bucket the second size, and so on. A range, which is
    a list that begins with 0, becomes its largest size.

    Raises:
        InvalidInput: the lists differ in length, are too long, or are not ascending.
    """
    shapes = _replace_ranges(shapes, lambda limit: limit)
    lists = [size for shape in shapes.values() for size in shape if not isinstance(size, int)]
    count = len(lists[0]) if lists else 1
    if any(len(each) != count for each in lists):
        raise InvalidInput("lists of sizes differ in length", hint="each bucket takes one size of every list")
    if not 1 <= count <= MAX_BUCKETS or any(list(each) != sorted(set(each)) for each in lists):
        raise InvalidInput(f"a list of sizes must contain 1 to {MAX_BUCKETS} different sizes in ascending order")
    return [
        {name: [size if isinstance(size, int) else size[index] for size in shape] for name, shape in shapes.items()}
        for index in range(count)
    ]


def parse_shapes(text: str) -> Shapes:
    """Parses shapes like `parse_open_shapes`, but without lists of sizes.

    Raises:
        InvalidInput: `text` is malformed, or contains a list of sizes.
    """
    return {name: [_single(size, text) for size in shape] for name, shape in parse_open_shapes(text).items()}


def _single(size: int | Sequence[int], text: str) -> int:
    if isinstance(size, int):
        return size
    raise InvalidInput(f"{text!r} names several shapes", hint="name one, like x=1,3,224,224")


def parse_open_shapes(text: str) -> dict[str, list[int | list[int]]]:
    """Parses shapes such as `x=1,3,224,224;y=1x[16,32];z=1x..128`, and returns them by input name.

    The name of an only input may be omitted. A list of sizes in brackets makes one bucket for each size; several shapes
    of one input, `x=1x16;x=1x32`, mean the same as `x=1x[16,32]`. Two dots
    before a size make a range, which is returned as a list that begins with 0.

    Raises:
        InvalidInput: `text` is malformed.
    """
    shapes: dict[str, list[int | list[int]]] = {}
    for part in filter(None, text.split(";")):
        name, _, written = part.rpartition("=")
        sizes = [size.strip() for size in _SEPARATOR.split(written)]
        if len(sizes) > _MOST_RANK or not all(map(_SIZE.fullmatch, sizes)):
            raise InvalidInput(f"{part!r} is not a shape", hint="write it like x=1,3,224,224, x=1x[16,32] or x=1x..128")
        shape = [_size(size) for size in sizes]
        shapes[name.strip()] = _join_shapes(shapes[name.strip()], shape, text) if name.strip() in shapes else shape
    return shapes


def _join_shapes(
    shape: Sequence[int | list[int]], other: Sequence[int | list[int]], text: str
) -> list[int | list[int]]:
    """Returns both shapes of an input as one, with a list of sizes for each axis on which they differ.

    Raises:
        InvalidInput: they differ in rank, or one has a range on an axis on which they differ.
    """
    if len(shape) != len(other):
        raise InvalidInput(f"an input has shapes of {len(shape)} and of {len(other)} axes in {text!r}")
    if any(left != right and (_limit_of(left) or _limit_of(right)) for left, right in zip(shape, other, strict=True)):
        raise InvalidInput(f"an input has a range and another shape in {text!r}", hint="a range contains all sizes")
    return [
        left if left == right else [*_listed(left), *_listed(right)] for left, right in zip(shape, other, strict=True)
    ]


def _listed(size: int | list[int]) -> list[int]:
    return [size] if isinstance(size, int) else size


def _size(text: str) -> int | list[int]:
    if text.startswith(".."):
        return [0, int(text[2:])]
    return [int(each) for each in text[1:-1].split(",")] if text.startswith("[") else int(text)


def ladder(longest: int) -> list[int]:
    """Returns the buckets for all sizes up to `longest`, for targets that accept no ranges: 8, 12, 16, 24, 32, 48 …
    and `longest` itself.

    So an input is padded by less than half of its size, if it is not very short. There are at most `MAX_BUCKETS`, the
    largest ones.
    """
    steps = [size << power for power in range(longest.bit_length()) for size in (_SHORTEST, _SHORTEST * 3 // 2)]
    return [*(size for size in steps if size < longest), longest][-MAX_BUCKETS:]


def parse_batches(text: str) -> tuple[int, ...]:
    """Parses batch sizes such as `1,8,16`. Returns them in ascending order, each once, and always with 1.

    Raises:
        InvalidInput: `text` is malformed, or a size is too large.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 6 for part in parts):
        raise InvalidInput(f"{text!r} is not a list of batch sizes", hint="write it like 1,8,16")
    return check_batches(map(int, parts))


def check_batches(sizes: Iterable[int]) -> tuple[int, ...]:
    """Returns batch sizes in ascending order, each once, and always with 1.

    Raises:
        InvalidInput: a size is not from 1 to `MAX_BATCH`.
    """
    batches = sorted({1, *sizes})
    if not 1 <= batches[0] <= batches[-1] <= MAX_BATCH:
        raise InvalidInput(f"batch sizes are 1 to {MAX_BATCH}, not {', '.join(map(str, batches))}")
    return tuple(batches)


def tune_s_of(options: Mapping[str, Any]) -> float | None:
    """Returns the time to search for faster tile sizes, in seconds; None for no search."""
    seconds = options.get(TUNE)
    return None if seconds is None else float(seconds)


def with_tuning(options: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    return {**options, TUNE: seconds}


def without_tuning(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of the same build without tuning."""
    return {name: value for name, value in options.items() if name != TUNE}


def accepts_differences(options: Mapping[str, Any]) -> bool:
    """Returns true if the build may be served even if it differs from its reference runtime."""
    return options.get(ACCEPT) is True


def with_acceptance(options: Mapping[str, Any], accepts: bool) -> dict[str, Any]:
    """Returns the options of a build which, if `accepts`, may be served even if it differs from its reference."""
    return {**options, **({ACCEPT: True} if accepts else {})}


def counts_values(options: Mapping[str, Any]) -> bool:
    """Returns true if the artifact counts the values that its operators store. Such an artifact is not served."""
    return options.get(COUNTS) is True


def with_counts(options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the options of the build that counts the values of the model that `options` build.

    None if the build with `options` is a variant of another one (a larger batch, a bucket, a tuned build), because only
    one build of a model counts.
    """
    is_variant = batch_of(options) > 1 or tune_s_of(options) is not None or counts_values(options)
    if is_variant or BUCKETS in options or RANGES in options:
        return None
    return {**with_fixed(with_shapes(shapes_of(options)), fixed_of(options)), COUNTS: True}


def parse_tune(text: str) -> float:
    """Parses a tuning time such as `60s`, `2m` or `60`, and returns seconds.

    Raises:
        InvalidInput: `text` is malformed, or the time is too short or too long.
    """
    number, unit = (text[:-1], _UNITS_S[text[-1]]) if text[-1:] in _UNITS_S else (text, 1.0)
    if not number.isascii() or not number.isdecimal() or len(number) > 6:
        raise InvalidInput(f"{text!r} is not a tuning time", hint="write it like 60s or 2m")
    return check_tune(int(number) * unit)


def check_tune(seconds: float) -> float:
    """Returns `seconds` if it is a valid tuning time. Otherwise raises `InvalidInput`."""
    if not LEAST_TUNE_S <= seconds <= MOST_TUNE_S:
        raise InvalidInput(f"a build is tuned for {LEAST_TUNE_S:g} to {MOST_TUNE_S:g} s, not {seconds:g}")
    return seconds
