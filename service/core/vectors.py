"""Inputs for verification, made from a seed so that they need not be stored: extremes and random ones.

The stored answers name an input by its place alone, so whoever changes what stands at a place changes the version in
`core.artifact.Report.VECTORS` too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.core.signature import ModelSignature, TensorSpec

Array = NDArray[Any]
Sample = list[Array]

_RAMP_STEPS = 256  # all the values of an 8-bit type


class _Input:
    """One input to be filled, of any dtype and shape, also of one element or none.

    Attributes:
        low, high: the ends of an integer's type; ±1e6 of a float, which saturate whatever is quantized from it.
        middle: the zero point, or else the value in the middle of the type; 0 of a float.
        ramp: evenly spaced from low to high; of a float from -16 to 16, which need not saturate.
    """

    def __init__(self, spec: TensorSpec, rng: np.random.Generator) -> None:
        self.shape, self.dtype, self.rng = spec.shape, spec.dtype, rng
        self.size = math.prod(spec.shape)
        self.low: Any
        self.high: Any
        steps = min(_RAMP_STEPS, self.size)
        if self.dtype.kind == "f":
            self.low, self.high, self.middle = -1e6, 1e6, 0
            self.ramp = np.linspace(-16, 16, steps).tolist()
            return
        self.low, self.high = _ends(self.dtype)
        self.middle = spec.quantization.zero_point if spec.quantization else (self.low + self.high + 1) // 2
        # In Python's integers: no type of NumPy's holds the span of INT64.
        span, last = self.high - self.low, max(1, steps - 1)
        self.ramp = [self.low + span * step // last for step in range(steps)]

    def full(self, value: float) -> Array:
        return np.full(self.shape, value, self.dtype)

    def repeat(self, values: list[float]) -> Array:
        return np.resize(np.array(values, self.dtype), self.size).reshape(self.shape)

    def high_where(self, mask: NDArray[np.bool_]) -> Array:
        return np.where(mask, self.full(self.high), self.full(self.low))

    def along(self, which: int) -> Array:
        """Each element's place along the first (0) or last (-1) axis longer than 1; not the batch's, given a choice."""
        axes = [axis for axis, length in enumerate(self.shape) if length > 1]
        axes = [axis for axis in axes if axis > 0] or axes
        return np.indices(self.shape)[axes[which]] if axes else np.zeros(self.shape, np.int64)

    def centre(self) -> NDArray[np.bool_]:
        """True at one element, in the middle of every axis."""
        mask = np.zeros(self.shape, np.bool_)
        if self.size:
            mask[tuple(length // 2 for length in self.shape)] = True
        return mask

    def random(self) -> Array:
        if self.dtype.kind == "f":
            return self.rng.normal(0.0, 4.0, self.shape).astype(self.dtype)
        if self.dtype.kind == "b":
            return self.coins()
        integers: Array = self.rng.integers(self.low, self.high, self.shape, self.dtype, endpoint=True)
        return integers

    def coins(self) -> NDArray[np.bool_]:
        return self.rng.integers(0, 2, self.shape, np.bool_)


# Ten that differ from each other, but in tensors of very few elements or rows, and in BOOL, which has no middle. Those
# that find most come first. The inputs of a model with several are filled alike; only the coins are tossed for each.
EXTREMES: Mapping[str, Callable[[_Input], Array]] = {
    "minimum": lambda it: it.full(it.low),
    "maximum": lambda it: it.full(it.high),
    "alternating": lambda it: it.repeat([it.high, it.low]),
    "coins": lambda it: it.high_where(it.coins()),
    "middle": lambda it: it.full(it.middle),
    "ramp": lambda it: it.repeat(it.ramp),
    "rows": lambda it: it.high_where(it.along(0) % 4 < 2),  # in pairs, and ...
    "channels": lambda it: it.high_where(it.along(-1) % 2 == 1),  # ... low first: not as "alternating" in a vector
    "one maximum": lambda it: it.high_where(it.centre()),
    "one minimum": lambda it: it.high_where(~it.centre()),
}


def sample_inputs(signature: ModelSignature, samples: int, seed: int = 0) -> list[Sample]:
    """`samples` inputs for a model, the same on every machine: each of the `EXTREMES` in turn with a random one.

    Where they are used up, at twice their number, the others are random, so that 110 samples are all 10 extremes and
    100 random ones, and 8 are four of each. A smaller number gives the first inputs of a larger one.

    Random integers take every value of their type; random floats are those a quantized input can tell apart, four
    times as wide.

    Args:
        signature: of known shapes, without -1.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    fills = [fill for extreme in EXTREMES.values() for fill in (extreme, _Input.random)]
    fills += [_Input.random] * (samples - len(fills))
    return [[fill(_Input(spec, rng)) for spec in signature.inputs] for fill in fills[:samples]]


def _ends(dtype: np.dtype[Any]) -> tuple[int, int]:
    if dtype.kind == "b":
        return 0, 1
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)
