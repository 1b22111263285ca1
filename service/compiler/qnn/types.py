"""Quantized types: how the integers in a tensor represent real values.

The rules are those of MLIR's `quant` dialect (`UniformQuantizedType`, `UniformQuantizedPerAxisType`,
`UniformQuantizedSubChannelType`): real = scale * (stored - zero_point). `type_parser` reads their text form. Storage
bounds that are narrower than the storage type represent clamps: weights of a narrow range (`i8<-127:127>`), or a fused
activation on an output type (`u8<0:128>` is a ReLU6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from service.core.errors import InvalidInput

_WIDTHS = range(2, 17)  # bits of a stored value that is not an accumulator
_ACCUMULATOR_WIDTHS = (32, 64)

# Storage type -> smallest and largest value: `int2` to `int16`, `uint2` to `uint16`, `int32` and `int64`.
STORAGE_RANGES: dict[str, tuple[int, int]] = {
    **{f"int{width}": (-(1 << (width - 1)), (1 << (width - 1)) - 1) for width in (*_WIDTHS, *_ACCUMULATOR_WIDTHS)},
    **{f"uint{width}": (0, (1 << width) - 1) for width in _WIDTHS},
}
_ACCUMULATORS = tuple(f"int{width}" for width in _ACCUMULATOR_WIDTHS)

# Expressed type -> smallest and largest positive value.
EXPRESSED_RANGES: dict[str, tuple[float, float]] = {
    "float16": (2.0**-24, 65504.0),
    "bfloat16": (2.0**-133, (2.0 - 2.0**-7) * 2.0**127),
    "float32": (2.0**-149, (2.0 - 2.0**-23) * 2.0**127),
    "float64": (2.0**-1074, (2.0 - 2.0**-52) * 2.0**1023),
}

# Storage or expressed type -> name in the text form: `i8`, `u4`, `f32`, `bf16`.
SHORT = {
    name: name.replace("uint", "u").replace("int", "i").replace("float", "f")
    for name in (*STORAGE_RANGES, *EXPRESSED_RANGES)
}


class InvalidQuantizedType(InvalidInput):
    """A quantized type breaks a rule of the quant dialect."""

    code = "invalid_quantized_type"


@dataclass(frozen=True)
class QuantizedType:
    """A quantized type: per tensor, per axis (`axis` is given) or per block (`blocks` are given: sub-channel).

    Attributes:
        storage: the type of the stored integers, a key of `STORAGE_RANGES`. A tensor holds them in the next larger
            type of 8 or 16 bits (`dtype`).
        scales: positive and finite; one, or one for each index of `axis`, or one for each block, the last dimension
            fastest. For at most 16 bits of storage, scales are numbers of the expressed type. For accumulators, they
            are exact products of two such scales (48 bits, which a Python float can represent).
        zero_points: one for each scale, or a single one, which is repeated; within the storage range. (MLIR allows
            values outside of this range. No framework uses such values, and kernels rely on the range.)
        axis: the quantized dimension.
        storage_min, storage_max: bounds of the stored values; by default those of the storage type.
        expressed: the floating-point type of the real values.
        blocks: pairs of a dimension and the number of elements of a block along it. A dimension that is not listed is
            one block.
        grid: how many blocks each dimension of the tensor has.
    """

    storage: str
    scales: tuple[float, ...]
    zero_points: tuple[int, ...] = (0,)
    axis: int | None = None
    storage_min: int | None = None
    storage_max: int | None = None
    expressed: str = "float32"
    blocks: tuple[tuple[int, int], ...] | None = None
    grid: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.storage not in STORAGE_RANGES:
            raise InvalidQuantizedType(f"{self.storage} cannot store quantized values")
        if self.expressed not in EXPRESSED_RANGES:
            raise InvalidQuantizedType(f"quantized values must express a floating-point type, not {self.expressed}")
        if len(self.zero_points) == 1:
            object.__setattr__(self, "zero_points", self.zero_points * len(self.scales))
        low, high = STORAGE_RANGES[self.storage]
        object.__setattr__(self, "storage_min", low if self.storage_min is None else self.storage_min)
        object.__setattr__(self, "storage_max", high if self.storage_max is None else self.storage_max)
        if not low <= self.min < self.max <= high:
            raise InvalidQuantizedType(f"storage bounds {self.min}:{self.max} do not fit {self.storage}")
        self._check_granularity()
        self._check_parameters(low, high)

    def _check_granularity(self) -> None:
        if self.axis is not None and self.blocks is not None:
            raise InvalidQuantizedType("a type is quantized along an axis or in blocks, not both")
        if self.blocks is not None:
            self._check_blocks(self.blocks)
        elif self.grid:
            raise InvalidQuantizedType("a type without blocks cannot have a grid")
        elif self.axis is None and len(self.scales) != 1:
            raise InvalidQuantizedType(f"a per-tensor type has one scale, not {len(self.scales)}")
        elif self.axis is not None and self.axis < 0:
            raise InvalidQuantizedType(f"the quantized dimension {self.axis} is negative")

    def _check_blocks(self, blocks: tuple[tuple[int, int], ...]) -> None:
        dimensions = [dimension for dimension, _ in blocks]
        if len(set(dimensions)) != len(dimensions):
            raise InvalidQuantizedType("a dimension has two block sizes")
        for dimension, size in blocks:
            if not 0 <= dimension < len(self.grid):
                raise InvalidQuantizedType(
                    f"quantized dimension {dimension} is outside the {len(self.grid)} dimensions of the grid"
                )
            if size < 1:
                raise InvalidQuantizedType(f"block size {size} of dimension {dimension} is not positive")
        for dimension, count in enumerate(self.grid):
            if count < 1 or (count > 1 and dimension not in dimensions):
                raise InvalidQuantizedType(f"{count} blocks along dimension {dimension}, which has no block size")
        if math.prod(self.grid) != len(self.scales):
            raise InvalidQuantizedType(f"{len(self.scales)} scales do not fit a grid of {list(self.grid)} blocks")

    def _check_parameters(self, low: int, high: int) -> None:
        if len(self.zero_points) != len(self.scales):
            raise InvalidQuantizedType(f"{len(self.scales)} scales but {len(self.zero_points)} zero points")
        if not all(math.isfinite(scale) and scale > 0 for scale in self.scales):
            raise InvalidQuantizedType("every scale must be positive and finite")
        least, most = EXPRESSED_RANGES[self.expressed]
        if not self.is_accumulator and not all(least <= scale <= most for scale in self.scales):
            raise InvalidQuantizedType(f"a scale is outside the range of {self.expressed}")
        if not all(low <= zero_point <= high for zero_point in self.zero_points):
            raise InvalidQuantizedType(f"a zero point is outside the range of {self.storage}")

    @property
    def min(self) -> int:
        """The smallest stored integer."""
        assert self.storage_min is not None  # set by __post_init__
        return self.storage_min

    @property
    def max(self) -> int:
        """The largest stored integer."""
        assert self.storage_max is not None
        return self.storage_max

    @property
    def dtype(self) -> str:
        """The dtype of the tensors that hold the stored integers: that of `i4` is int8, and that of `u12` is uint16."""
        sign, width = ("uint" if self.storage.startswith("u") else "int"), self.bits
        return self.storage if width in _ACCUMULATOR_WIDTHS else f"{sign}{8 if width <= 8 else 16}"

    @property
    def bits(self) -> int:
        """The number of bits of a stored integer."""
        return int(self.storage.lstrip("uint"))

    @property
    def is_accumulator(self) -> bool:
        """True if the stored integers are sums of products."""
        return self.storage in _ACCUMULATORS

    @property
    def is_per_tensor(self) -> bool:
        """True if all values have one scale and one zero point."""
        return self.axis is None and self.blocks is None

    @property
    def scale(self) -> float:
        """The scale that the whole tensor shares.

        Raises:
            InvalidQuantizedType: the type is per axis or in blocks, so it has several scales.
        """
        if len(self.scales) != 1:
            raise InvalidQuantizedType("the type has several scales, but one is needed")
        return self.scales[0]

    @property
    def zero_point(self) -> int:
        """The zero point that the whole tensor shares.

        Raises:
            InvalidQuantizedType: the type is per axis, so it has several zero points.
        """
        if len(set(self.zero_points)) != 1:
            raise InvalidQuantizedType("zero points differ along the quantized axis")
        return self.zero_points[0]

    def normalized(self) -> QuantizedType:
        """Returns the same type in its simplest form, as MLIR's pass `normalize-quant-types` does.

        Only dimensions with several blocks are listed, in ascending order. Without any, the type is per tensor. With
        one, whose blocks have one element, it is per axis.
        """
        if self.blocks is None:
            return self
        blocks = tuple(sorted((dimension, size) for dimension, size in self.blocks if self.grid[dimension] > 1))
        if not blocks:
            return replace(self, blocks=None, grid=())
        if len(blocks) == 1 and blocks[0][1] == 1:
            return replace(self, axis=blocks[0][0], blocks=None, grid=())
        return self if blocks == self.blocks else replace(self, blocks=blocks)

    def misfit(self, shape: tuple[int | None, ...]) -> str | None:
        """Returns the reason why a tensor of `shape` cannot have this type, or None if it can. Dynamic dimensions are
        None.
        """
        if self.axis is not None:
            if not shape:
                return "a scalar cannot be quantized per axis"
            if self.axis >= len(shape):
                return f"axis {self.axis} is outside the shape {_shape_text(shape)}"
            if shape[self.axis] not in (None, len(self.scales)):
                return f"{len(self.scales)} scales do not fit {shape[self.axis]} indices of axis {self.axis}"
        if self.blocks is not None:
            if not shape:
                return "a scalar cannot be quantized in blocks"
            if len(shape) != len(self.grid):
                return f"a grid of {len(self.grid)} dimensions does not fit the shape {_shape_text(shape)}"
            for dimension, size in self.blocks:
                extent = shape[dimension]
                if extent is not None and extent != size * self.grid[dimension]:
                    blocks = f"{self.grid[dimension]} blocks of {size}"
                    return f"{blocks} do not fit {extent} elements of dimension {dimension}"
        return None

    def __str__(self) -> str:
        """Returns MLIR's text form, e.g. `!quant.uniform<i8<-127:127>:f32:0, {0.5,0.25:3}>`; `parse` reads it back
        exactly.
        """
        storage = SHORT[self.storage]
        if (self.min, self.max) != STORAGE_RANGES[self.storage]:
            storage += f"<{self.min}:{self.max}>"
        head = f"!quant.uniform<{storage}:{SHORT[self.expressed]}"
        points = [
            f"{scale!r}:{zero_point}" if zero_point else repr(scale)
            for scale, zero_point in zip(self.scales, self.zero_points, strict=True)
        ]
        if self.blocks is not None:
            sizes = ",".join(f"{dimension}:{size}" for dimension, size in self.blocks)
            return f"{head}:{{{sizes}}}, {_nested(points, self.grid)}>"
        if self.axis is not None:
            return f"{head}:{self.axis}, {_nested(points, (len(points),))}>"
        return f"{head}, {points[0]}>"


def _nested(points: Sequence[str], grid: Sequence[int]) -> str:
    """Returns `points` in braces, nested as many levels deep as `grid` has dimensions."""
    if not grid:
        return points[0]
    step = len(points) // grid[0]
    return "{" + ",".join(_nested(points[i * step : (i + 1) * step], grid[1:]) for i in range(grid[0])) + "}"


def _shape_text(shape: tuple[int | None, ...]) -> str:
    return f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"


def accumulator_type(
    input_type: QuantizedType, weight_type: QuantizedType, axis: int, dtype: str = "int32"
) -> QuantizedType:
    """Returns the type of sums of products: scale s_x * s_w (exact in a Python float), zero point 0.

    If the weights are per-axis, the accumulator type is per-axis along `axis` of the output.
    """
    scales = tuple(input_type.scale * scale for scale in weight_type.scales)
    return QuantizedType(dtype, scales, axis=None if weight_type.axis is None else axis)
