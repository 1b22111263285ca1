"""Concatenation of channels. One kernel copies all parts, through a lookup table if a part's type differs from the
destination's.

A part that begins at a block and has the destination's type is not copied if the kernel that computes the part can
write it directly to the destination.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from service.compiler.kernels.arithmetic.numerics import bounds
from service.compiler.kernels.arithmetic.tables import channel_tables, first_channels, is_identity
from service.compiler.kernels.cuda.text import constant_parameters, kernel_function, translation_unit
from service.compiler.kernels.cuda.types.elements import THREADS, Blocks, launch_for, require_blocks
from service.compiler.kernels.cuda.types.images import BLOCK, check_sizes
from service.compiler.kernels.kernel import Declined, DeviceFunction, Kernel
from service.compiler.kernels.layout import Image
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array

_MOST_PARTS = 64  # each part adds code to the kernel


def check_concat(mode: Mode, operation: Operation) -> None:
    """Checks that `concat` can compute a `qnn.concatenate`.

    Raises:
        Declined: the axis is not the channels, a type is not 8 bits with one scale, or there are too many parts.
    """
    parts = len(channel_tables(mode, operation))
    if parts > _MOST_PARTS:
        raise Declined(f"it joins {parts} tensors, more than {_MOST_PARTS}")


def concat(
    sources: Sequence[Image], destination: Image, operation: Operation, mode: Mode, *, placed: Collection[int] = ()
) -> Kernel:
    """Returns the kernel of a `qnn.concatenate` along the channels.

    Args:
        sources: the parts, in order.
        placed: the indices of the parts that are already in the destination (`tables.places`). These parts are not
            parameters of the kernel.

    Raises:
        Declined: `check_concat` declines the operator, or an image is packed or too large.
    """
    check_concat(mode, operation)
    require_blocks(*sources, destination)
    check_sizes(*sources, destination)
    copied = [position for position in range(len(sources)) if position not in placed]
    firsts, tables = first_channels(operation), _tables(mode, operation, copied)
    to, written = Blocks.of(destination).filled, _written_blocks(sources, firsts, copied)
    to = replace(to, blocks=len(written))
    parts = []
    for position, (first, source) in enumerate(zip(firsts, sources, strict=True)):
        if position in placed:
            parts.append(f"octet::PlacedPart<{to.strides}, {first}, {source.channels}>{{destination}}")
        else:
            table = list(tables).index(position) if position in tables else -1
            strides = Blocks.of(source).strides
            parts.append(f"octet::CopiedPart<{strides}, {first}, {source.channels}, {table}>{{part_{position}}}")
    fill = np.array([bounds(operation.per_tensor("out_type")).zero_point], np.uint8)
    joined = [np.concatenate(list(tables.values()))] if tables else []
    constants: tuple[Array, ...] = (np.array(written, np.int32), fill, *joined)
    names = [f"constant_{number}" for number in range(len(constants))]
    given = [*names, *([] if tables else ["nullptr"]), "destination", *parts]
    body = [f"octet::concatenate<{to.order}, {to.strides}, {len(tables)}>({', '.join(given)});"]
    parameters = [f"const octet::u8* __restrict__ part_{position}" for position in copied]
    parameters += [*constant_parameters(constants), "octet::u8* __restrict__ destination"]
    text = translation_unit("concat.cuh", kernel_function(THREADS, parameters, body))
    facts = {
        "tables": len(tables),
        "aligned": all(channel % BLOCK == 0 for channel in firsts),
        "in_place": len(placed),
    }
    function = DeviceFunction(text, launch_for(to))
    return Kernel("concat", function, constants, destination.size_bytes, facts)


def _tables(mode: Mode, operation: Operation, copied: Sequence[int]) -> dict[int, Array]:
    """Returns the lookup table of each copied part whose type differs from the destination's."""
    tables = channel_tables(mode, operation)
    return {position: tables[position] for position in copied if not is_identity(tables[position])}


def _written_blocks(sources: Sequence[Image], firsts: Sequence[int], copied: Sequence[int]) -> list[int]:
    """Returns the blocks of the destination that contain a channel of a copied part."""
    found = {
        block
        for position in copied
        for block in range(firsts[position] // BLOCK, -(-(firsts[position] + sources[position].channels) // BLOCK))
    }
    return sorted(found)
