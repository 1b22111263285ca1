"""The values of a layer's outputs during the conversion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

_NEGLIGIBLE = 1e-5  # a shift below this part of the range is left out


@dataclass(frozen=True, eq=False)
class Steps:
    """The conversion of real values to stored ones: round(x * factor + shift), clamped to 0 … `last`."""

    factor: np.float32
    shift: np.float32
    last: int

    @classmethod
    def of(cls, low: np.float32, high: np.float32, levels: int) -> Steps:
        """Returns the conversion of the range `low` to `high`, whose numbers OpenVINO computes in float32."""
        factor = np.float32(np.float32(levels - 1) / np.float32(high - low))
        shift = np.float32(-low * factor)
        return cls(factor, np.float32(0) if abs(shift) < levels * _NEGLIGIBLE else shift, levels - 1)


@dataclass(frozen=True, eq=False)
class Stored:
    """The result of a FakeQuantize: integers, and the type that gives their real values.

    Attributes:
        source: the real values that the FakeQuantize rounded, and how; None if another layer computed the integers.
    """

    expr: relax.Expr
    type: QuantizedType
    source: tuple[relax.Expr, Steps] | None = None


@dataclass(frozen=True, eq=False)
class Compressed:
    """Constant weights (data - zero_point) * scale that are stored as integers.

    Attributes:
        data: int8 or uint8.
        scale, zero_point: broadcast to `data`; None for 1 and for 0.
        shape: the shape of the real weights, into which the product is reshaped.
    """

    data: Array
    shape: tuple[int, ...]
    scale: Array | None = None
    zero_point: Array | None = None

    @property
    def values(self) -> Array:
        """The real weights, float32."""
        wide = self.data.astype(np.float32)
        if self.zero_point is not None:
            wide = wide - self.zero_point.astype(np.float32)
        if self.scale is not None:
            wide = wide * self.scale.astype(np.float32)
        return np.asarray(wide).reshape(self.shape)

    def row_scales(self, axis: int) -> Array | None:
        """Returns one scale, or one for each index of `axis`, float32. Returns None if the weights have other scales,
        zero points, or another shape than the stored values.
        """
        if self.scale is None or self.data.shape != self.shape:
            return None
        if self.zero_point is not None and np.any(self.zero_point != 0):
            return None
        padded = (1,) * (self.data.ndim - self.scale.ndim) + self.scale.shape
        if any(size != 1 for each, size in enumerate(padded) if each != axis % self.data.ndim):
            return None
        return self.scale.reshape(-1).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Scaled:
    """The sum of two stored tensors, before it is multiplied by its scale. A FakeQuantize that reads it takes the scale
    into its own, as OpenVINO's transformations do.

    Attributes:
        expr: float32.
        scale: float32.
        by_convolution: true if the convolution before the sum computes it.
    """

    expr: relax.Expr
    scale: np.float32
    by_convolution: bool


# An expression of the module, elements that are known while importing, or one of the classes above.
Value = Any
