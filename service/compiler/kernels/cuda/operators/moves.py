"""The kernel of moves on GPUs.

The kernel loads the addresses of source elements from tables. Destination vectors whose source elements have the same
relative addresses share a row of a table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from service.compiler.kernels.arithmetic.tables import ENTRIES, is_identity
from service.compiler.kernels.cuda.text import TYPES, constant_parameters, kernel_function, translation_unit
from service.compiler.kernels.cuda.types.elements import THREADS, Blocks, launch_for
from service.compiler.kernels.cuda.types.images import CHUNK_BYTES
from service.compiler.kernels.kernel import Declined, DeviceFunction, Kernel
from service.compiler.kernels.layout import BIAS
from service.compiler.kernels.moves import (
    NOTHING,
    PART_BITS,
    Integers,
    Memory,
    Move,
    addresses_of,
    blocks_of_lanes,
)
from service.core.models.arrays import Array

_MOST_PARTS = 64  # each source adds code to the kernel
_MOST_ADDRESSES = 1 << 30
_WIDE = ("float32", "int32")


def move(made: Move) -> Kernel:
    """Returns the kernel of a move.

    Raises:
        Declined: `addresses_of` declines the move; the elements do not have 8 or 32 bits; the move is empty; or there
            are too many sources, or too large tensors.
    """
    dtypes = {memory.dtype for memory in (*made.sources, made.destination)}
    if not dtypes <= {*BIAS, *_WIDE} or (len(dtypes) > 1 and not dtypes <= BIAS.keys()):
        raise Declined(f"it copies elements of type {', '.join(sorted(dtypes))}")
    if not made.elements.size:
        raise Declined("it copies no elements")  # a launch has at least one block
    if len(made.sources) > _MOST_PARTS:
        raise Declined(f"it copies elements of {len(made.sources)} tensors, more than {_MOST_PARTS}")
    firsts = np.cumsum([0, *(source.size for source in made.sources)])
    if max(firsts[-1], made.destination.size) >= _MOST_ADDRESSES:
        raise Declined("its tensors are too large")
    own = CHUNK_BYTES // np.dtype(made.destination.dtype).itemsize
    origins, offsets = _alike(_wanted_addresses(made, firsts, own))
    return _kernel(made, origins, offsets, [int(first) for first in firsts[:-1]])


def _wanted_addresses(made: Move, firsts: Integers, own: int) -> Integers:
    """Returns the source address of each element of the destination's memory, in vectors of `own` elements.

    The result is `[vectors, own]`. Filler has negative addresses.
    """
    addresses = addresses_of(made.sources, made.elements)
    addresses = firsts[addresses >> PART_BITS] + (addresses & ((1 << PART_BITS) - 1))
    if made.destination.image is not None:
        return blocks_of_lanes(made.destination.image, addresses).reshape(-1, own)
    filled = np.full(-(-addresses.size // own) * own, NOTHING, np.int64)
    filled[: addresses.size] = addresses
    return filled.reshape(-1, own)


def _alike(wanted: Integers) -> tuple[Array, Array]:
    """Divides the addresses `wanted` into `[vectors, 2]` origins and `[rows, own]` offsets, int32 (see
    `source/move.cuh`).
    """
    neighbours, first = np.arange(wanted.shape[1]), np.maximum(wanted[:, :1], 0)
    apart = np.where(wanted < 0, neighbours, wanted - first)
    offsets, row = np.unique(np.concatenate([neighbours[None], apart]), axis=0, return_inverse=True)
    row = row.reshape(-1)
    order = np.concatenate(
        [row[:1], np.delete(np.arange(len(offsets)), row[0])]
    )  # the row of contiguous elements is first
    origins = np.stack([first[:, 0], np.argsort(order)[row[1:]]], axis=1)
    return origins.astype(np.int32), offsets[order].astype(np.int32)


def _kernel(made: Move, origins: Array, offsets: Array, firsts: Sequence[int]) -> Kernel:
    destination, image = made.destination, made.destination.image
    type_ = TYPES["uint8" if destination.dtype in BIAS else destination.dtype]
    to = Blocks.contiguous((1, 1, 1, destination.size)) if image is None else Blocks.of(image)
    tables = _tables(made)
    arrays = (
        origins.reshape(-1),
        offsets.reshape(-1),
        np.array([made.fill] if to.halo else [], np.uint8),
        np.concatenate([*tables.values(), np.zeros(0, np.uint8)]),
    )
    constants = tuple(array for array in arrays if array.size)
    names = (f"constant_{index}" for index in range(len(constants)))
    given = [next(names) if array.size else "nullptr" for array in arrays]
    parts = []
    for index, first in enumerate(firsts):
        table = list(tables).index(index) if index in tables else -1
        parts.append(f"octet::MovedPart<{type_}, {first}, {table}>{{source_{index}}}")
    body = [
        f"using Order = {to.order};",
        f"using Destination = {to.strides};",
        f"octet::move<Order, Destination, {len(tables)}, {type_}>({', '.join([*given, 'destination', *parts])});",
    ]
    parameters = [f"const {type_}* __restrict__ source_{index}" for index in range(len(parts))]
    parameters += [*constant_parameters(constants), f"{type_}* __restrict__ destination"]
    text = translation_unit("move.cuh", kernel_function(THREADS, parameters, body))
    itemsize = np.dtype(destination.dtype).itemsize
    facts = {"vectors": len(origins), "ways": len(offsets), "tables": len(tables)}
    function = DeviceFunction(text, launch_for(to, itemsize))
    return Kernel("move", function, constants, destination.size * itemsize, facts)


def _tables(made: Move) -> dict[int, Array]:
    """Returns a lookup table from bytes of a source to bytes of the destination, for each source whose bytes change."""
    if made.destination.dtype not in BIAS:
        return {}
    tables = {}
    for position, (source, table) in enumerate(zip(made.sources, made.tables, strict=True)):
        stored = np.arange(ENTRIES) ^ _flipped_bit(source)
        moved = (stored if table is None else table[stored]) ^ _flipped_bit(made.destination)
        if not is_identity(moved):
            tables[position] = moved.astype(np.uint8)
    return tables


def _flipped_bit(memory: Memory) -> int:
    """Returns the bit in which the bytes in memory differ from stored bytes: the highest for int8 tensors, else
    none.
    """
    return BIAS[memory.dtype] if memory.image is None else 0
