"""Float32 values for tests of functions."""

from __future__ import annotations

import numpy as np

from service.compiler.qnn.types import QuantizedType

NOTABLE = np.array(
    [-np.inf, np.inf, np.nan, 0, -0.0, 1e-45, -1e-45, 0.921875, -0.921875, 3.925, 9, -9, 18, -18, 88.7762, -103.972],
    np.float32,
)


def of_every_size() -> np.ndarray:
    """Returns `NOTABLE`, numbers with every exponent, and additional numbers in the ranges in which functions vary."""
    rng = np.random.default_rng(0)
    any_bits = rng.integers(0, 1 << 32, 1 << 15, np.uint32).view(np.float32)
    near = [rng.uniform(-size, size, 1 << 14).astype(np.float32) for size in (1, 4, 20, 110)]
    return np.concatenate([NOTABLE, any_bits, *near])


def around(kind: QuantizedType, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Returns values near the bounds of a type, values halfway between two of its values, tiny ones and huge ones."""
    rng = np.random.default_rng(seed)
    steps = rng.integers(-300, 300, shape) + rng.choice([0, 0.5, 0.5, 0.25, 1e-7], shape)
    extreme = rng.choice([np.inf, -np.inf, 1e30, -1e30, 1e-40, 0.0, 1e12, -1e12], shape)
    values = np.where(rng.random(shape) < 0.1, extreme, steps * kind.scale)
    return values.astype(np.float32)
