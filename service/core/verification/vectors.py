"""Inputs for verification: extreme, random and smooth ones. The inputs are generated from a seed, so they need not be
stored.

The stored expected outputs identify an input by its index alone. A change of the input at any index must therefore also
change the version in `core.artifacts.artifact.Report.VECTORS`.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature, TensorSpec

Sample = list[Array]

_RAMP_STEPS = 256  # the number of values of an 8-bit type
_UNBOUNDED_FLOATS = (-4.0, 4.0)  # the range of smooth inputs for which the model gives no bounds
_OCTAVES = (1, 2, 4, 8, 16)  # lattice cells along each axis of a smooth input; each octave is half as strong
_LEVELS = 1 << 16  # the number of steps between the lowest and the highest value of a smooth integer input


class InputFill:
    """Generates values for one input of any dtype and shape, including shapes with one element or none.

    Attributes:
        low, high: for integers the input's bounds, or else the limits of the type. For floats ±1e6 (float16: ±65504),
            which saturates any quantization of them.
        middle: for integers the zero point, or else the middle between `low` and `high`. For floats 0.
        ramp: evenly spaced values from `low` to `high`; for floats from -16 to 16, which need not saturate.
    """

    def __init__(self, spec: TensorSpec, rng: np.random.Generator) -> None:
        self.shape, self.dtype, self.rng, self.bounds = spec.shape, spec.dtype, rng, spec.bounds
        self.size = math.prod(spec.shape)
        self.low: Any
        self.high: Any
        steps = min(_RAMP_STEPS, self.size)
        if self.dtype.kind == "f":
            self.high = min(1e6, float(np.finfo(self.dtype).max))
            self.low, self.middle = -self.high, 0
            self.ramp = np.linspace(-16, 16, steps).tolist()
            return
        self.low, self.high = (
            _ends(self.dtype) if spec.bounds is None else (int(spec.bounds.low), int(spec.bounds.high))
        )
        self.middle = spec.quantization.zero_point if spec.quantization else (self.low + self.high + 1) // 2
        # The bounds are Python integers, because no NumPy type can represent the span of INT64.
        span, last = self.high - self.low, max(1, steps - 1)
        self.ramp = [self.low + span * step // last for step in range(steps)]

    def full(self, value: float) -> Array:
        return np.full(self.shape, value, self.dtype)

    def repeat(self, values: list[float]) -> Array:
        return np.resize(np.array(values, self.dtype), self.size).reshape(self.shape)

    def high_where(self, mask: NDArray[np.bool_]) -> Array:
        return np.where(mask, self.full(self.high), self.full(self.low))

    def along(self, which: int) -> Array:
        """Returns each element's index along the first (`which` = 0) or last (-1) axis that is longer than 1.

        Axis 0, the batch, is taken only if no other axis is longer than 1.
        """
        axes = [axis for axis, length in enumerate(self.shape) if length > 1]
        axes = [axis for axis in axes if axis > 0] or axes
        return np.indices(self.shape)[axes[which]] if axes else np.zeros(self.shape, np.int64)

    def centre(self) -> NDArray[np.bool_]:
        """Returns a mask that is true at one element, in the middle of every axis."""
        mask = np.zeros(self.shape, np.bool_)
        if self.size:
            mask[tuple(length // 2 for length in self.shape)] = True
        return mask

    def random(self) -> Array:
        if self.dtype.kind == "f":
            if self.bounds is None:
                return self.rng.normal(0.0, 4.0, self.shape).astype(self.dtype)
            # A third of the values lie outside the bounds, where a quantized input saturates.
            return self.between(self.bounds.low, self.bounds.high, 1.5 * self.rng.random(self.shape) - 0.25)
        if self.dtype.kind == "b":
            return self.coins()
        integers: Array = self.rng.integers(self.low, self.high, self.shape, self.dtype, endpoint=True)
        return integers

    def walk(self) -> Array:
        """Returns evenly spaced values from a random start, so that over many calls each element gets every value."""
        if self.dtype.kind == "b" or not self.size:
            return self.random()
        start = int(self.rng.integers(1 << 16))
        steps = np.arange(self.size, dtype=np.int64) + start
        if self.dtype.itemsize == 1:
            values = int(self.low) + steps % (int(self.high) - int(self.low) + 1)
            return np.asarray(values.astype(self.dtype).reshape(self.shape))
        return np.asarray(np.array(self.ramp, self.dtype)[steps % len(self.ramp)].reshape(self.shape))

    def near(self) -> Array:
        """Returns random values near the zero point, or near 0 for floats: within a random power of two of it."""
        if self.dtype.kind == "b":
            return self.random()
        if self.dtype.kind == "f":
            low, high = (self.bounds.low, self.bounds.high) if self.bounds else _UNBOUNDED_FLOATS
            reach = max(abs(low), abs(high)) * 2.0 ** -float(self.rng.integers(0, 9))
            return np.asarray(reach * (2.0 * self.rng.random(self.shape) - 1.0)).astype(self.dtype)
        reach = 1 << int(self.rng.integers(0, 8))
        low, high = max(int(self.low), self.middle - reach), min(int(self.high), self.middle + reach)
        found: Array = self.rng.integers(min(low, high), max(low, high), self.shape, self.dtype, endpoint=True)
        return found

    def coins(self) -> NDArray[np.bool_]:
        return self.rng.integers(0, 2, self.shape, np.bool_)

    def smooth(self) -> Array:
        """Returns values like those of a picture: neighboring elements differ little (see `_field`).

        The values stay within the bounds and cover between half of the range and all of it, so that some inputs are
        dark and some are light.
        """
        width = 0.5 + 0.5 * self.rng.random()
        first = (1.0 - width) * self.rng.random()
        field = np.asarray(first + width * _field(self.shape, self.rng))
        if self.dtype.kind == "f":
            low, high = (self.bounds.low, self.bounds.high) if self.bounds else _UNBOUNDED_FLOATS
            return self.between(low, high, field)
        # 64 bits are enough for the span of every type, and for the products of its parts with a level.
        levels = np.rint(field.reshape(-1) * _LEVELS).astype(np.uint64)
        whole, rest = (np.uint64(part) for part in divmod(self.high - self.low, _LEVELS))
        above = whole * levels + (rest * levels + np.uint64(_LEVELS // 2)) // np.uint64(_LEVELS)
        return (above.view(np.int64) + np.int64(self.low)).astype(self.dtype).reshape(self.shape)

    def between(self, low: float, high: float, field: NDArray[np.float64]) -> Array:
        return np.asarray(low + (high - low) * field).astype(self.dtype)


def _field(shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
    """Returns value noise in octaves, from 0 to 1: the sum of random lattices, linearly interpolated to `shape`.

    The computation uses only sums, products and quotients, which IEEE 754 defines exactly, so every machine generates
    the same values.
    """
    field = np.zeros(shape)
    if not field.size:
        return field
    for octave, cells in enumerate(_OCTAVES):
        lattice = rng.random([1 + min(cells, length - 1) for length in shape])
        for axis, length in enumerate(shape):
            lattice = _stretched(lattice, axis, length)
        field += lattice / (1 << octave)
    low, high = field.min(), field.max()
    return np.asarray((field - low) / (high - low) if high > low else np.full(shape, rng.random()))


def _stretched(values: NDArray[np.float64], axis: int, length: int) -> NDArray[np.float64]:
    """Interpolates `values` linearly at `length` evenly spaced points along `axis`, both ends included."""
    cells = values.shape[axis] - 1
    if cells == 0:
        return values
    positions = np.arange(length) * cells / (length - 1)
    before = np.minimum(positions.astype(np.int64), cells - 1)
    share = (positions - before).reshape([-1 if each == axis else 1 for each in range(values.ndim)])
    return np.asarray(values.take(before, axis) * (1 - share) + values.take(before + 1, axis) * share)


# Ten patterns, which differ from each other except in tensors with very few elements or rows, and in BOOL, which has no
# middle value. The patterns that find most errors come first. All inputs of a model get the same pattern; only "coins"
# is drawn for each input separately.
EXTREMES: Mapping[str, Callable[[InputFill], Array]] = {
    "minimum": lambda it: it.full(it.low),
    "maximum": lambda it: it.full(it.high),
    "alternating": lambda it: it.repeat([it.high, it.low]),
    "coins": lambda it: it.high_where(it.coins()),
    "middle": lambda it: it.full(it.middle),
    "ramp": lambda it: it.repeat(it.ramp),
    "rows": lambda it: it.high_where(it.along(0) % 4 < 2),  # two rows high, two rows low
    "channels": lambda it: it.high_where(it.along(-1) % 2 == 1),  # starts low, to differ from "alternating" in a vector
    "one maximum": lambda it: it.high_where(it.centre()),
    "one minimum": lambda it: it.high_where(~it.centre()),
}
_FILLS: Mapping[str, Callable[[InputFill], Array]] = {
    **EXTREMES,
    "random": InputFill.random,
    "smooth": InputFill.smooth,
}


def sample_inputs(signature: ModelSignature, samples: int, seed: int = 0) -> list[Sample]:
    """Returns `samples` inputs for a model, the same on every machine.

    The order is: an extreme of `EXTREMES`, a random input, a smooth input, the next extreme, and so on. After the last
    extreme, random and smooth inputs alternate. So 9 samples are three of each type, and 110 samples are all 10
    extremes, 50 random and 50 smooth inputs. A smaller number of samples gives the first samples of a larger number.

    Integers stay within their bounds; without bounds they may have any value of their type. Random floats exceed their
    bounds by up to a quarter of the range at both ends; smooth floats stay within them.

    Args:
        signature: a signature with static shapes, without -1.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    return [[_FILLS[kind](InputFill(spec, rng)) for spec in signature.inputs] for kind in sample_kinds(samples)]


def sample_kinds(samples: int) -> list[str]:
    """Returns the type of each input of `sample_inputs`: the name of an extreme, "random" or "smooth"."""
    kinds = [kind for extreme in EXTREMES for kind in (extreme, "random", "smooth")]
    kinds += ["random", "smooth"] * (max(0, samples - len(kinds) + 1) // 2)
    return kinds[:samples]


MOST_PROBES = 400  # the largest number of inputs that the oracle chooses
PATTERNS = 9  # the number of generated inputs in a build's check: three extremes, three random and three smooth ones
CHOSEN = "chosen"  # the type of the inputs that the oracle chooses


def input_kinds(patterns: int, count: int) -> list[str]:
    """Returns the types of the `count` inputs of a build's check: `sample_kinds`, then those that the oracle chose."""
    return [*sample_kinds(min(patterns, count)), *[CHOSEN] * max(0, count - patterns)]


def read_probes(data: bytes, signature: ModelSignature) -> list[Sample]:
    """Reads the inputs that the oracle chose from the file attached to an artifact (`Report.PROBES`).

    Raises:
        ValueError: the inputs do not match the signature.
    """
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        names = [name.split(".") for name in arrays.files if name.startswith("input.")]
        count = 1 + max((int(number) for _, number, _ in names), default=-1)
        positions = range(len(signature.inputs))
        if len(names) != count * len(positions):
            raise ValueError(f"{len(names)} arrays are not the {len(positions)} inputs of {count} samples")
        found = [[arrays[f"input.{number}.{position}"] for position in positions] for number in range(count)]
    for sample in found:
        for value, spec in zip(sample, signature.inputs, strict=True):
            if (value.shape, value.dtype) != (spec.shape, spec.dtype):
                raise ValueError(f"an input of {value.shape} {value.dtype} is not one of {spec.shape} {spec.dtype}")
    return found


def _ends(dtype: np.dtype[Any]) -> tuple[int, int]:
    if dtype.kind == "b":
        return 0, 1
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def masked_samples(signature: ModelSignature) -> list[Sample]:
    """Returns four random samples: integers within their bounds, floats normally distributed.

    In the first sample, the masks (inputs with the bounds 0 and 1) are all ones.
    """
    return [_masked(signature, seed) for seed in range(4)]


def _masked(signature: ModelSignature, seed: int) -> Sample:
    rng = np.random.default_rng(seed)
    inputs: Sample = []
    for spec in signature.inputs:
        if spec.dtype.kind == "f":
            inputs.append(rng.standard_normal(spec.shape).astype(spec.dtype))
            continue
        low, high = _ends(spec.dtype) if spec.bounds is None else (int(spec.bounds.low), int(spec.bounds.high))
        value = rng.integers(low, high, spec.shape, np.int64, endpoint=True)
        if (low, high) == (0, 1):
            value[..., :1] = 1  # at least one position must be visible, or attention has no defined result
            value = np.ones_like(value) if seed == 0 else value
        inputs.append(value.astype(spec.dtype))
    return inputs
