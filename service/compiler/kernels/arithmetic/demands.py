"""Checks if a kernel can compute an elementwise operator on 8-bit images."""

from __future__ import annotations

from collections.abc import Sequence

from service.compiler.kernels.arithmetic.numerics import arithmetic_of, bounds
from service.compiler.kernels.arithmetic.tables import channel_tables, table_of
from service.compiler.kernels.group import Group, shape_of
from service.compiler.kernels.kernel import Declined
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.ops.unary import FUNCTIONS

_OF_TWO = ("add", "mul", "prelu", "squared_difference", "sub")
ELEMENTWISE = tuple(f"qnn.{name}" for name in (*_OF_TWO, "concatenate", "requantize", "table", *FUNCTIONS))


def check_elementwise(mode: Mode, group: Group, produced: Sequence[bool]) -> None:
    """Checks that a kernel can compute an elementwise group, and that this is worthwhile.

    Args:
        produced: for each input, true if it is the output of a kernel.

    Raises:
        Declined: no kernel computes the group, or it would not be faster.
    """
    core = group.core
    # Only kernels leave out positions beyond the length, which saves more than two layout changes cost.
    if group.length is None and not any(produced):
        raise Declined("none of its operands is the output of a kernel, so it would cost two layout changes")
    bounds(group.out_type)
    match core.name:
        case "qnn.concatenate":
            channel_tables(mode, core)
        case _ if len(group.inputs) == 1:
            table_of(mode, core)
            if shape_of(group.inputs[0]) != shape_of(group.output):
                raise Declined("its only operand is broadcast")
        case _:
            arithmetic_of(mode, core)
    if core.name != "qnn.concatenate" and len({shape_of(var)[-1] for var in group.inputs}) > 1:
        raise Declined("one channel is broadcast to all")
    if len({len(shape_of(var)) for var in group.inputs}) > 1:
        raise Declined("its operands have different ranks")
