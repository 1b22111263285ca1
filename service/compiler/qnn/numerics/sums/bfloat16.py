"""Sums of products of bfloat16 operands in float32, in the order and with the rounding of x86's `vdpbf16ps`.

Operands are float32 values that are first rounded to bfloat16, halves to even (`vcvtneps2bf16`). Products that are
adjacent along the sum form pairs. The second product of each pair is added first, then the first, each by a fused
multiply-add in float32. Subnormal operands, and sums that are subnormal after a product, count as 0 of their sign; the
instructions do so whatever floating-point mode the process sets. A sum of an odd number of products ends with a pair
whose second product is 0 * 0. Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VDPBF16PS
and VCVTNEPS2BF16. An AMD EPYC of Zen 4 gives the same bits (compared on pairs of random bits).

The product of two bfloat16 values is exact in float32. A runtime may round the operands in the same way as the
instruction but add the products in a different order. The results of such a runtime differ by the rounding of that
order, and by at most 2**-126 for each product or sum that was flushed.

The instruction tests whether a sum is subnormal after rounding it to 24 bits with an unlimited exponent. This code
tests the float32 result. The two differ if the exact magnitude of a sum is less than 2**-126 by more than 2**-151 and
at most 2**-150: such a sum is 2**-126 here, and 0 in the instruction. No other difference is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from service.compiler.qnn.numerics.formula import Scalar
from service.compiler.qnn.numerics.scaling.fused import sums_of_products
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array

BFLOAT16 = "bfloat16"
PAIR = 2

_MAGNITUDE, _EXPONENT, _LEAST_NORMAL = 0x7FFFFFFF, 0x7F800000, 0x00800000
_UPPER, _QUIET = 0xFFFF0000, 0x00400000


def is_bfloat16(operation: Operation) -> bool:
    """Returns true if a product's operands are rounded to bfloat16."""
    return str(operation.attr("operand_dtype")) == BFLOAT16


def run_of(operation: Operation) -> int:
    """Returns how many products along a sum are adjacent in the left operand. A pair never contains products of two
    such runs.

    For a convolution, a run is a row of its kernel, or the channels at one kernel position if groups or dilation
    separate the columns.
    """
    if operation.name == "qnn.real_matmul":
        return int(operation.call.args[0].ty.shape[-1])
    _, _, columns, channels = (int(dim) for dim in operation.call.args[1].ty.shape)
    apart = operation.integer("groups") > 1 or operation.ints("dilation", 2, 1)[1] > 1
    return channels if apart else columns * channels


def rounded(values: Array) -> Array:
    """Rounds float32 to the nearest bfloat16, returned as float32."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    nearest = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) & np.uint32(_UPPER)
    magnitude = bits & np.uint32(_MAGNITUDE)
    nearest = np.where(magnitude > _EXPONENT, bits & np.uint32(_UPPER) | np.uint32(_QUIET), nearest)
    return np.asarray(np.where(magnitude < _LEAST_NORMAL, bits & ~np.uint32(_MAGNITUDE), nearest)).view(np.float32)


def words_of(values: Array) -> Array:
    """Returns the bits of the nearest bfloat16, uint16."""
    return (rounded(values).view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def sums_of_pairs(a: Array, b: Array, run: int) -> Array:
    """Multiplies `[rows, count]` by `[count, columns]`. Pairs are formed only within runs of `run` products."""
    order = pair_order(a.shape[1], run)
    lhs, rhs = np.take(rounded(a), order, axis=1), np.take(rounded(b), order, axis=0)
    lhs[:, order < 0] = rhs[order < 0] = 0.0
    return sums_of_products(lhs, rhs, flushed=True)


def pair_order(count: int, run: int) -> Array:
    """Returns the indices of the products in the order in which they are added; -1 represents 0 * 0."""
    positions = np.full((count // run, -(-run // PAIR) * PAIR), -1)
    positions[:, :run] = np.arange(count).reshape(-1, run)
    return positions.reshape(-1, PAIR)[:, ::-1].reshape(-1)


# -- in tensor IR


def lowered_rounding(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """Emits `rounded` as a tensor program."""

    def compute(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *index: _nearest(x(*index)), name="rounded")

    return builder.emit(builder.call_te(compute, x, primfunc_name_hint="rounded"))


def lowered_flush(value: Scalar) -> Scalar:
    """Returns `value`, or 0 of its sign if it is subnormal."""
    bits = tirx.reinterpret("uint32", value)
    is_small = (bits & _word(_MAGNITUDE)) < _word(_LEAST_NORMAL)
    return tirx.reinterpret("float32", tirx.Select(is_small, bits & _word(_MAGNITUDE + 1), bits))


def _nearest(value: Scalar) -> Scalar:
    bits = tirx.reinterpret("uint32", value)
    nearest = (bits + _word(0x7FFF) + ((bits >> _word(16)) & _word(1))) & _word(_UPPER)
    magnitude = bits & _word(_MAGNITUDE)
    nearest = tirx.Select(magnitude > _word(_EXPONENT), (bits & _word(_UPPER)) | _word(_QUIET), nearest)
    nearest = tirx.Select(magnitude < _word(_LEAST_NORMAL), bits & _word(_MAGNITUDE + 1), nearest)
    return tirx.reinterpret("float32", nearest)


def pair_axes(count: int) -> tuple[Sequence[tirx.IterVar], Any]:
    """Returns the axes over a run of `count` products, in pairs, and the position of a product in the run."""
    pair, half = te.reduce_axis((0, -(-count // PAIR)), "pair"), te.reduce_axis((0, PAIR), "half")
    return [pair, half], pair * PAIR + (PAIR - 1) - half


def _word(value: int) -> Scalar:
    return tirx.const(value, "uint32")
