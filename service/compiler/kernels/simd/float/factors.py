"""The types of factors of float products: single float32 values, or pairs of bfloat16 values.

A *group* is the factors that one lane multiplies in one step of a sum: one float32 value, or a pair of bfloat16 values
that are neighbors along the sum. A vector of groups has one group for each lane. If the number of values is odd, the
second value of the last pair is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from tvm import tirx

from service.compiler.kernels.program import Buffer, Expr, Program, at_most, bits, load, load_first, splat
from service.compiler.kernels.vector.lanes import Lanes
from service.compiler.qnn.numerics.sums.bfloat16 import BFLOAT16, PAIR, words_of
from service.core.models.arrays import Array

Place = tuple[Buffer, Expr]  # a buffer, and an offset in it


class Factors(Protocol):
    """One type of factors."""

    @property
    def size(self) -> int:
        """The number of products of a group."""

    @property
    def stored(self) -> str:
        """The dtype of an operand's elements in memory."""

    @property
    def group(self) -> str:
        """The dtype of a group."""

    @property
    def facts(self) -> Mapping[str, str]:
        """Information for reports."""

    def packed(self, weights: Array, run: int) -> Array:
        """Converts weights `[…, depth, columns]` float32 to groups `[…, steps, columns]`.

        A group does not cross the end of a run of `run` rows.
        """

    def copy(self, lanes: Lanes, source: Place, destination: Place, size: int) -> None:
        """Converts exactly `size` float32 values to elements of an operand."""

    def along(self, buffer: Buffer, offset: Expr, count: int, size: int) -> Expr:
        """Loads `count` consecutive groups of `size` elements each."""

    def across(self, lanes: Lanes, buffer: Buffer, offset: Expr, step: int, size: int, count: int) -> Expr:
        """Loads a vector of `count` groups that begin at neighboring offsets.

        The `size` elements of a group are `step` apart.
        """

    def add_products(self, lanes: Lanes, totals: Expr, group: Expr, weights: Expr) -> Expr:
        """Returns `totals` plus, in each lane, the products of the lane's factors in `group` and in `weights`."""


@dataclass(frozen=True)
class Singles:
    """Single float32 values."""

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
        return lanes.fma(group, weights, totals)


SINGLES = Singles()


@dataclass(frozen=True)
class BFloat16Pairs:
    """Pairs of bfloat16 values in 32 bits. The first value of a pair is in the lower half."""

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
        """Converts exactly `size` float32 values. The last two vectors overlap."""
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
    """Loads a vector without reading more than `count` elements of the buffer."""
    return load(buffer, offset, lanes) if count >= lanes else load_first(buffer, offset, lanes, count)


def copy(program: Program, lanes: int, source: Place, destination: Place, size: int) -> None:
    """Copies exactly `size` elements. The last two vectors overlap. If there are fewer elements than lanes, narrower
    vectors are used."""
    width = widest(lanes, size)
    with program.loop(-(-size // width), "part") as part:
        at = program.bind(at_most(part * width, size - width))
        program.store(destination[0], destination[1] + at, load(source[0], source[1] + at, width), width)


def widest(lanes: int, size: int) -> int:
    """Returns the largest power of two of at most `lanes` and at most `size`."""
    while lanes > size:
        lanes //= 2
    return lanes
