"""Lookup tables of operators whose result depends on a single 8-bit operand. The tables map stored bytes to stored
bytes.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from service.compiler.kernels.arithmetic.numerics import bounds
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layout import BIAS
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.operation import Operation, value_of
from service.core.models.arrays import Array

ENTRIES = 256


def is_identity(table: Array) -> bool:
    return bool((table == np.arange(ENTRIES)).all())


def table_of(mode: Mode, operation: Operation) -> Array:
    """Returns the lookup table of an operator on one 8-bit tensor, `[256] uint8`, computed by `mode`'s oracle.

    Raises:
        Declined: a type is not 8 bits with one scale.
    """
    constants = [value_of(operand) for operand in operation.call.args]
    index = next(index for index, constant in enumerate(constants) if constant is None)
    name = "in_type" if len(constants) == 1 else ("lhs_type", "rhs_type")[index]
    in_type, out_type = operation.quantized(name), operation.quantized("out_type")
    bounds(in_type), bounds(out_type)
    stored = (np.arange(ENTRIES) - BIAS[in_type.dtype]).astype(in_type.dtype)
    operands = [stored if constant is None else constant.reshape(-1)[:1] for constant in constants]
    result = mode.formula(operation).evaluate(operation, *operands)
    return (result.astype(np.int16) + BIAS[out_type.dtype]).astype(np.uint8)


def part_tables(mode: Mode, operation: Operation) -> list[Array]:
    """Returns a lookup table `[256] uint8` for each part of a `qnn.concatenate`, computed by `mode`'s oracle.

    Raises:
        Declined: a type is not 8 bits with one scale.
    """
    in_types = operation.quantized_parts()
    out_type, axis = operation.per_tensor("out_type"), operation.integer("axis")
    for quantized in (*in_types, out_type):
        bounds(quantized)
    rank = len(operation.static(operation.call.args[0].fields[0].ty, "operand 0")[0])
    if rank < 2:
        raise Declined("it concatenates one-dimensional tensors")
    shape = [1] * rank
    shape[axis - 1] = ENTRIES  # any axis but the concatenated one can enumerate the 256 bytes
    parts = [(np.arange(ENTRIES) - BIAS[part.dtype]).astype(part.dtype).reshape(shape) for part in in_types]
    result = np.moveaxis(mode.formula(operation).evaluate(operation, *parts), axis, -1).reshape(ENTRIES, -1)
    return [(column.astype(np.int16) + BIAS[out_type.dtype]).astype(np.uint8) for column in result.T]


def channel_tables(mode: Mode, operation: Operation) -> list[Array]:
    """Returns `part_tables` of a concatenation of channels.

    Raises:
        Declined: the axis is not the last one, or `part_tables` declines the operator.
    """
    rank = len(operation.static(operation.call.args[0].fields[0].ty, "operand 0")[0])
    if operation.integer("axis") != rank - 1:
        raise Declined(f"it concatenates along axis {operation.integer('axis')} of {rank}, not along the channels")
    return part_tables(mode, operation)


def first_channels(operation: Operation) -> list[int]:
    """Returns the first channel of each part of a `qnn.concatenate` in the destination."""
    *before, _ = (part.ty.shape[-1] for part in operation.call.args[0].fields)
    return [0, *accumulate(int(channels) for channels in before)]


def places(lanes: int, mode: Mode, operation: Operation) -> list[int | None]:
    """Returns, for each part, the destination block from which on the part's kernel can write the part directly; None
    if the part must be copied.

    Such a part must be written before the other parts are copied, because the kernel may write filler into the part's
    last block, which may also contain channels of the next part.

    Args:
        lanes: the number of channels in a block.

    Raises:
        Declined: `channel_tables` declines the operator.
    """
    found: list[int | None] = []
    for values, channel in zip(channel_tables(mode, operation), first_channels(operation), strict=True):
        block, lane = divmod(channel, lanes)
        found.append(block if lane == 0 and is_identity(values) else None)
    return found
