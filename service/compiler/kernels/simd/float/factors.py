"""What float products are multiplied of: float32 values one by one, or bfloat16 values in pairs along the sum.

A *group* is the products of one step of a sum: one, or the two of a pair. A vector of groups has one for each lane, a
group of an odd number's end has 0 behind its only value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from tvm import tirx

from service.compiler.kernels.program import Buffer, Expr, Program, at_most, bits, load, load_first, splat
from service.compiler.kernels.vector.lanes import Lanes
from service.compiler.qnn.numerics.bfloat16 import BFLOAT16, PAIR, words_of
from service.core.arrays import Array

Place = tuple[Buffer, Expr]  # a buffer, and an offset in it


class Factors(Protocol):
    """One kind of operands."""

    @property
    def size(self) -> int:
        """Products of a group."""

    @property
    def stored(self) -> str:
        """The dtype of an operand's elements in memory."""

    @property
    def group(self) -> str:
        """The dtype of a group."""

    @property
    def facts(self) -> Mapping[str, str]:
        """What reports say of it."""

    def packed(self, weights: Array, run: int) -> Array:
        """`[…, depth, columns]` float32 -> groups `[…, steps, columns]`; a group lies within `run` products."""

    def copy(self, lanes: Lanes, source: Place, destination: Place, size: int) -> None:
        """`size` float32 as elements of an operand, and not one more read or written."""

    def along(self, buffer: Buffer, offset: Expr, count: int, size: int) -> Expr:
        """`count` groups of `size` neighbours each."""

    def across(self, lanes: Lanes, buffer: Buffer, offset: Expr, step: int, size: int, count: int) -> Expr:
        """A vector of groups whose `size` members lie `step` apart, at `count` neighbouring places."""

    def add_products(self, lanes: Lanes, totals: Expr, group: Expr, weights: Expr) -> Expr:
        """`totals` and the products of a group, in each lane, with those of `weights`."""


@dataclass(frozen=True)
class Singles:
    """float32."""

    size: int = 1
    stored: str = "float32"
    group: str = "float32"

    @property
    def facts(self) -> Mapping[str, str]:
        return {}

    def packed(self, weights: Array, run: int) -> Array:
        return weights

    def copy(self, lanes: Lanes, source: Place, destination: Place, size: int) -> None:
        copy(lanes.program, lanes.isa.lanes, source, destination, size)

    def along(self, buffer: Buffer, offset: Expr, count: int, size: int) -> Expr:
        return load(buffer, offset, count)

    def across(self, lanes: Lanes, buffer: Buffer, offset: Expr, step: int, size: int, count: int) -> Expr:
        return _at_most(buffer, offset, lanes.isa.lanes, count)

    def add_products(self, lanes: Lanes, totals: Expr, group: Expr, weights: Expr) -> Expr:
        return lanes.multiply_add(group, weights, totals)


SINGLES = Singles()


@dataclass(frozen=True)
class BFloat16Pairs:
    """bfloat16; the first of a pair is in the lower half of 32 bits."""

    size: int = PAIR
    stored: str = "uint16"
    group: str = "int32"

    @property
    def facts(self) -> Mapping[str, str]:
        return {"operands": BFLOAT16}

    def packed(self, weights: Array, run: int) -> Array:
        *outer, depth, columns = weights.shape
        runs = words_of(weights).reshape(*outer, depth // run, run, columns)
        filled = np.zeros((*runs.shape[:-2], -(-run // PAIR) * PAIR, columns), np.uint16)
        filled[..., :run, :] = runs
        pairs = filled.reshape(*outer, -1, PAIR, columns).astype(np.uint32)
        return np.asarray((pairs[..., 0, :] | pairs[..., 1, :] << np.uint32(16)).view(np.int32))

    def copy(self, lanes: Lanes, source: Place, destination: Place, size: int) -> None:
        """Vectors overlap at the end."""
        program, isa = lanes.program, lanes.isa
        width = min(isa.lanes, size)
        with program.loop(-(-size // width), "part") as part:
            at = program.bind(at_most(part * width, size - width))
            values = lanes.keep(_at_most(source[0], program.bind(source[1] + at), isa.lanes, width), "float32")
            words = program.bind(isa.bfloat16.words(program, values), f"{self.stored}x{isa.lanes}")
            program.store_first(destination[0], program.bind(destination[1] + at), words, isa.lanes, width)

    def along(self, buffer: Buffer, offset: Expr, count: int, size: int) -> Expr:
        if size == PAIR:
            return bits(f"int32x{count}" if count > 1 else "int32", load(buffer, offset, PAIR * count))
        assert count == 1
        return tirx.Cast("int32", load(buffer, offset, 1))

    def across(self, lanes: Lanes, buffer: Buffer, offset: Expr, step: int, size: int, count: int) -> Expr:
        width, dtype = lanes.isa.lanes, f"int32x{lanes.isa.lanes}"
        members = [tirx.Cast(dtype, _at_most(buffer, offset + at * step, width, count)) for at in range(size)]
        return members[0] if size == 1 else members[0] | (members[1] << splat(tirx.const(16, "int32"), width))

    def add_products(self, lanes: Lanes, totals: Expr, group: Expr, weights: Expr) -> Expr:
        return lanes.isa.bfloat16.add_products(lanes.program, totals, group, weights)


def _at_most(buffer: Buffer, offset: Expr, lanes: int, count: int) -> Expr:
    """A vector, of which `count` elements are there to be read."""
    return load(buffer, offset, lanes) if count >= lanes else load_first(buffer, offset, lanes, count)


def copy(program: Program, lanes: int, source: Place, destination: Place, size: int) -> None:
    """`size` elements, and not one more read or written: vectors overlap at the end, fewer elements are narrower."""
    width = widest(lanes, size)
    with program.loop(-(-size // width), "part") as part:
        at = program.bind(at_most(part * width, size - width))
        program.store(destination[0], destination[1] + at, load(source[0], source[1] + at, width), width)


def widest(lanes: int, size: int) -> int:
    """The most lanes of a vector that `size` elements fill, a power of two."""
    while lanes > size:
        lanes //= 2
    return lanes
