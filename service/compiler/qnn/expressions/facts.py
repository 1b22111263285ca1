"""The knowledge of a target about the operands of an expression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType
from service.core.models.arrays import Array

_SMALLEST, _LARGEST = STORAGE_RANGES["int32"]


@dataclass(frozen=True)
class Facts:
    """The limits of accumulators, and how the target stores bytes.

    Attributes:
        smallest, largest: the limits of each channel's accumulators, `[C]` or `[1]` int64.
        known: true if accumulators have these limits, false if nothing is known about them.
        biases: storage type -> the number that is added to a value of that type to store it (`layout.BIAS`).
    """

    smallest: Array = field(default_factory=lambda: np.array([_SMALLEST]))
    largest: Array = field(default_factory=lambda: np.array([_LARGEST]))
    known: bool = True
    biases: Mapping[str, int] = field(default_factory=dict)

    @property
    def magnitudes(self) -> Array:
        """The largest magnitude of each channel's accumulators."""
        return np.maximum(self.largest, -self.smallest)

    def bias(self, quantized: QuantizedType) -> int:
        """Returns the number that is added to a value of a type to store it."""
        return self.biases.get(quantized.dtype, 0)

    def zero_point(self, quantized: QuantizedType) -> int:
        """Returns the zero point of a type, as the target stores it."""
        return quantized.zero_point + self.bias(quantized)

    def ends(self, quantized: QuantizedType) -> tuple[int, int, int]:
        """Returns the zero point of the first channel, and the bounds of a type, as the target stores them."""
        bias = self.bias(quantized)
        return quantized.zero_points[0] + bias, quantized.min + bias, quantized.max + bias

    def fits(self, scales: Array, addends: Array | float = 0.0) -> bool:
        """Returns true if `accumulator * scale + addend` is known to be below 2**31.

        Only the upper limit matters, because `Ops.round_even` saturates below where accumulators have limits.
        """
        with np.errstate(all="ignore"):
            return self.known and bool((self.largest.astype(np.float32) * scales + addends < float(1 << 31)).all())


UNKNOWN = Facts(known=False)  # of generated code, in which bytes are stored as the model stores them
