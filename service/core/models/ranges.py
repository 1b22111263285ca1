"""The range of values that a quantized tensor can store, and counts of the values that were to be stored in it.

A *code* is the integer that represents a real value: round(real / scale) + zero_point. Codes between the bounds of the
storage type are stored; the others are clipped to the nearest bound. Counts are a vector of int64 with `LENGTH`
elements: how many codes are below and above the bounds, the smallest and the largest code, and a histogram of `BINS`
bins. Its middle third covers the bounds, and the first and the last bin contain all codes beyond the histogram.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

INSIDE = 64  # the bins between the bounds
BINS = 3 * INSIDE
BELOW, ABOVE, SMALLEST, LARGEST, HEAD = range(5)  # the elements before the histogram, and their number
LENGTH = HEAD + BINS
MOST_CODE = 1 << 40  # codes are clamped to this value and its negative
_RELU6 = 6.0


@dataclass(frozen=True)
class StoredRange:
    """The range of the real values that one tensor can store. Calibration chose it.

    Attributes:
        tensor: the tensor's name in the imported model.
        low, high: the smallest and the largest code that is stored.
    """

    tensor: str
    scale: float
    zero_point: int
    low: int
    high: int

    @property
    def bin_codes(self) -> int:
        """The number of codes in each bin of the histogram."""
        return max(1, -(-(self.high - self.low + 1) // INSIDE))

    @property
    def low_real(self) -> float:
        return self.real(self.low)

    @property
    def high_real(self) -> float:
        return self.real(self.high)

    @property
    def is_low_activation(self) -> bool:
        """True if the range begins at 0. Then the smallest code is the result of a ReLU for all negative values."""
        return self.low == self.zero_point

    @property
    def is_high_activation(self) -> bool:
        """True if the range ends at 6, within half a step. Then the largest code is the result of a ReLU6."""
        return abs(self.high_real - _RELU6) <= self.scale / 2

    def real(self, code: int) -> float:
        """Returns the real value that a code represents."""
        return (code - self.zero_point) * self.scale

    def bin_edge(self, index: int) -> int:
        """Returns the smallest code of a bin; the first bin contains smaller codes too."""
        return self.low + (index - INSIDE) * self.bin_codes

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(members: Mapping[str, Any]) -> StoredRange:
        """Raises `KeyError`, `TypeError` or `ValueError` if a member is missing or malformed."""
        found = StoredRange(
            str(members["tensor"]),
            float(members["scale"]),
            int(members["zero_point"]),
            int(members["low"]),
            int(members["high"]),
        )
        if not (0 < found.scale < float("inf") and -MOST_CODE < found.low < found.high < MOST_CODE):
            raise ValueError(f"the range of {found.tensor!r} is not valid")
        return found
