"""Quantized types: what an integer in a tensor stands for.

The rules and the text form are those of MLIR's `quant` dialect (`UniformQuantizedType`,
`UniformQuantizedPerAxisType`): real = scale * (stored - zero_point). Storage bounds narrower than the storage type
carry clamps: narrow-range weights (`i8<-127:127>`), and fused activations on an output type (`u8<0:128>` is a ReLU6).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

from service.core.errors import InvalidInput

# Storage dtype -> smallest and largest value.
STORAGE_RANGES: dict[str, tuple[int, int]] = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "uint8": (0, (1 << 8) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}
_SHORT = {"int8": "i8", "uint8": "u8", "int16": "i16", "int32": "i32", "int64": "i64", "float32": "f32"}
_LONG = {short: dtype for dtype, short in _SHORT.items()}


class InvalidQuantizedType(InvalidInput):
    """A quantized type breaks a rule of the quant dialect."""

    code = "invalid_quantized_type"


@dataclass(frozen=True)
class QuantizedType:
    """A quantized type, per tensor (`axis` is None) or per axis.

    Attributes:
        storage: dtype of the stored integers.
        scales: positive and finite; one, or one for each index of `axis`. A type of 8- or 16-bit storage holds
            exact float32 values; an accumulator's holds exact products of two of them (48 bits fit a float).
        zero_points: as many as `scales` (a single one given is repeated), within the storage range.
        axis: the quantized dimension.
        storage_min, storage_max: bounds of the stored values; the storage type's own where not given.
    """

    storage: str
    scales: tuple[float, ...]
    zero_points: tuple[int, ...] = (0,)
    axis: int | None = None
    storage_min: int | None = None
    storage_max: int | None = None
    expressed: str = "float32"

    def __post_init__(self) -> None:
        if self.storage not in STORAGE_RANGES:
            raise InvalidQuantizedType(f"{self.storage} cannot store quantized values")
        if self.expressed != "float32":
            raise InvalidQuantizedType(f"quantized values express float32, not {self.expressed}")
        if len(self.zero_points) == 1:
            object.__setattr__(self, "zero_points", self.zero_points * len(self.scales))
        low, high = STORAGE_RANGES[self.storage]
        object.__setattr__(self, "storage_min", low if self.storage_min is None else self.storage_min)
        object.__setattr__(self, "storage_max", high if self.storage_max is None else self.storage_max)
        self._check(low, high)

    def _check(self, low: int, high: int) -> None:
        if not low <= self.min < self.max <= high:
            raise InvalidQuantizedType(f"storage bounds {self.min}:{self.max} do not fit {self.storage}")
        if self.axis is None and len(self.scales) != 1:
            raise InvalidQuantizedType(f"a per-tensor type has one scale, not {len(self.scales)}")
        if self.axis is not None and self.axis < 0:
            raise InvalidQuantizedType(f"the quantized dimension {self.axis} is negative")
        if len(self.zero_points) != len(self.scales):
            raise InvalidQuantizedType(f"{len(self.scales)} scales but {len(self.zero_points)} zero points")
        if not all(math.isfinite(scale) and scale > 0 for scale in self.scales):
            raise InvalidQuantizedType("every scale must be positive and finite")
        if not all(low <= zero_point <= high for zero_point in self.zero_points):
            raise InvalidQuantizedType(f"a zero point lies outside {self.storage}")

    @property
    def min(self) -> int:
        assert self.storage_min is not None  # set by __post_init__
        return self.storage_min

    @property
    def max(self) -> int:
        assert self.storage_max is not None
        return self.storage_max

    @property
    def scale(self) -> float:
        """The scale of a per-tensor type."""
        (scale,) = self.scales
        return scale

    @property
    def zero_point(self) -> int:
        """The zero point that the whole tensor shares.

        Raises:
            InvalidQuantizedType: a per-axis type has several.
        """
        if len(set(self.zero_points)) != 1:
            raise InvalidQuantizedType("zero points differ along the quantized axis")
        return self.zero_points[0]

    def __str__(self) -> str:
        """MLIR's text form, e.g. `!quant.uniform<i8<-127:127>:f32:0, {0.5,0.25:3}>`; `parse` reads it back exactly."""
        storage = _SHORT[self.storage]
        if (self.min, self.max) != STORAGE_RANGES[self.storage]:
            storage += f"<{self.min}:{self.max}>"
        head = f"!quant.uniform<{storage}:{_SHORT[self.expressed]}"
        points = [
            f"{scale!r}:{zero_point}" if zero_point else repr(scale)
            for scale, zero_point in zip(self.scales, self.zero_points, strict=True)
        ]
        if self.axis is None:
            return f"{head}, {points[0]}>"
        return f"{head}:{self.axis}, {{{','.join(points)}}}>"


_TYPE = re.compile(
    r"!quant\.uniform<(?P<storage>[iu]\d+)(?:<(?P<min>-?\d+):(?P<max>-?\d+)>)?"
    r":(?P<expressed>f32)(?::(?P<axis>\d+))?, ?(?:\{(?P<points>[^{}]+)\}|(?P<point>[^{}]+))>"
)


@lru_cache(maxsize=4096)
def parse(text: str) -> QuantizedType:
    """The type that `text` spells.

    Raises:
        InvalidQuantizedType: it spells none, or one that breaks a rule.
    """
    match = _TYPE.fullmatch(text.strip())
    if not match or match["storage"] not in _LONG or (match["axis"] is None) != (match["points"] is None):
        raise InvalidQuantizedType(f"{text!r} is not a quantized type")
    points = [point.partition(":") for point in (match["points"] or match["point"]).split(",")]
    try:
        scales = tuple(float(scale) for scale, _, _ in points)
        zero_points = tuple(int(zero_point or 0) for _, _, zero_point in points)
    except ValueError as exc:
        raise InvalidQuantizedType(f"{text!r} has a malformed scale or zero point") from exc
    return QuantizedType(
        _LONG[match["storage"]],
        scales,
        zero_points,
        axis=int(match["axis"]) if match["axis"] else None,
        storage_min=int(match["min"]) if match["min"] else None,
        storage_max=int(match["max"]) if match["max"] else None,
    )


def accumulator_type(
    input_type: QuantizedType, weight_type: QuantizedType, axis: int, dtype: str = "int32"
) -> QuantizedType:
    """The type of sums of products: scale s_x * s_w (exact in a Python float), zero point 0.

    Per axis `axis` of the output where the weights are per-axis.
    """
    scales = tuple(input_type.scale * scale for scale in weight_type.scales)
    return QuantizedType(dtype, scales, axis=None if weight_type.axis is None else axis)
