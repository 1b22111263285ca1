"""Draws random values: what the random models of all operators share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from service.core.models.arrays import Array
from tests.support.onnx_operator import Constant, Operand

Choice = TypeVar("Choice")
BYTES = ("int8", "uint8")


@dataclass(frozen=True)
class Drawn:
    """A model of one operator.

    Attributes:
        op_type: with its domain, if that is not ONNX's own.
        outputs: the dtype of each output.
        tolerance: the largest difference of float32 values, as a fraction of the largest value. 0 for integers.
    """

    op_type: str
    operands: Sequence[Operand]
    outputs: Sequence[str]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float = 0.0
    opset: int = 21

    def __str__(self) -> str:
        shown = []
        for each in self.operands:
            data = each.data if isinstance(each, Constant) else each
            if data is None:
                shown.append("-")
                continue
            value = f"={data.reshape(-1)[0]}" if data.size == 1 else ""
            kind = "constant " if isinstance(each, Constant) else ""
            shown.append(f"{kind}{data.dtype.name}{list(data.shape)}{value}")
        return f"{self.op_type}({', '.join(shown)}) {dict(self.attributes)}"


class Draw:
    """A source of random choices."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one(self, choices: Sequence[Choice]) -> Choice:
        return choices[int(self.rng.integers(len(choices)))]

    def often(self, share: float = 0.5) -> bool:
        return bool(self.rng.random() < share)

    def size(self, low: int = 1, high: int = 6) -> int:
        return int(self.rng.integers(low, high + 1))

    def sizes(self, count: int, low: int = 1, high: int = 6) -> list[int]:
        return [self.size(low, high) for _ in range(count)]

    def stored(self, dtype: str, *shape: int) -> Array:
        """Returns stored values of the whole range of a type."""
        limits = np.iinfo(dtype)
        return self.rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)

    def real(self, *shape: int) -> Array:
        return (self.rng.standard_normal(shape) * self.one((0.5, 1.0, 3.0))).astype(np.float32)

    def scale(self, count: int | None = None, low: float = 0.01, high: float = 0.1) -> Constant:
        """Returns a scale: a scalar, or `count` scales."""
        shape = () if count is None else (count,)
        return Constant(np.asarray(self.rng.uniform(low, high, shape), np.float32))

    def point(self, dtype: str, like: Constant, *, is_optional: bool = True) -> Constant | None:
        """Returns zero points for the scales `like`, or None for an operand that is left out: uint8 is the default."""
        if is_optional and dtype == "uint8" and self.often(0.15):
            return None
        points = self.stored(dtype, *like.data.shape)
        return Constant(np.zeros_like(points) if self.often(0.25) else points)

    def operand(self, data: Array, share: float = 0.2) -> Operand:
        """Returns an operand that is a constant of the model with a probability of `share`."""
        return Constant(data) if self.often(share) else data

    def broadcast(self, shape: Sequence[int]) -> list[int]:
        """Returns a shape that broadcasts to `shape`."""
        kept = [1 if self.often(0.3) else size for size in shape]
        return kept[self.size(0, len(kept)) :] if self.often(0.3) else kept


def strip(operands: Sequence[Operand]) -> list[Operand]:
    """Returns the operands without those at the end that are left out."""
    kept = list(operands)
    while kept and kept[-1] is None:
        kept.pop()
    return kept
