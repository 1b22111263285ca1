"""Sparse constants, most of whose zeros are not stored: `SparsityParameters` of schema.fbs.

Such a tensor is a tree with one level for each dimension. `order` contains the dimensions: first those of the tensor,
then those of its blocks, which divide some dimensions. In a dense level, every node has children for all indices of the
dimension. In a compressed level (CSR), node n has children for the indices `starts[n]` to `starts[n + 1]` of the list.
The leaves are the elements (`Populate` in tflite/kernels/internal/utils/sparsity_format_converter.cc).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tflite

from service.compiler.importers.tflite.accessors import ints
from service.compiler.importers.tflite.model import Level, Sparse
from service.core.errors import MalformedModel
from service.core.models.arrays import Array

# If the file contains a smaller fraction of a tensor's elements, the tensor is refused, because a small file must not
# become a large module. Pruned networks usually contain a fifth or a tenth.
SPARSEST = 1 / 32
_VECTORS: dict[int, type] = {
    tflite.SparseIndexVector.Int32Vector: tflite.Int32Vector,
    tflite.SparseIndexVector.Uint16Vector: tflite.Uint16Vector,
    tflite.SparseIndexVector.Uint8Vector: tflite.Uint8Vector,
}


def read_sparse(table: Any, elements: Array) -> Sparse:
    """Returns the content of a `SparsityParameters` and the stored elements, `[count]`. Neither of the two is checked
    yet.
    """
    levels = tuple(_level(table.DimMetadata(index)) for index in range(table.DimMetadataLength()))
    return Sparse(elements, ints(table, "TraversalOrder"), ints(table, "BlockMap"), levels)


def _level(table: Any) -> Level:
    if table.Format() != tflite.DimensionType.SPARSE_CSR:
        return Level(table.DenseSize() if table.Format() == tflite.DimensionType.DENSE else -1)
    starts = _vector(table.ArraySegmentsType(), table.ArraySegments)
    return Level(0, starts, _vector(table.ArrayIndicesType(), table.ArrayIndices))


def _vector(kind: int, read: Callable[[], Any]) -> Array:
    """Returns a view of a vector in the file, which is empty if the file omits the vector."""
    union = read() if kind in _VECTORS else None  # the verifier has not checked other types either
    if union is None:
        return np.zeros(0, np.uint8)
    vector = _VECTORS[kind]()
    vector.Init(union.Bytes, union.Pos)
    return np.asarray(vector.ValuesAsNumpy()) if vector.ValuesLength() else np.zeros(0, np.uint8)


def dense(sparse: Sparse, shape: tuple[int, ...]) -> Array:
    """Returns all elements of a tensor of `shape`. Elements that are not stored are zero.

    Needs some thirty bytes of memory for each element. No element is stored twice, so no level has more nodes than
    there are elements.

    Raises:
        MalformedModel: the levels do not describe a tensor of `shape`. The message begins with a verb; the caller adds
            the tensor's name.
    """
    steps = _steps(sparse, shape)
    positions = np.zeros(1, np.int64)  # for each node: the position of its first element in the result
    for number, (level, (size, step)) in enumerate(zip(sparse.levels, steps, strict=True)):
        if level.starts is None or level.indices is None:
            _require(level.size == size, f"has {level.size} indices in dimension {number}, which needs {size}")
            positions = (positions[:, None] + step * np.arange(size)).reshape(-1)
        else:
            starts, indices = level.starts.astype(np.int64), level.indices.astype(np.int64)
            positions = np.repeat(positions, _counts(starts, indices, len(positions), size, number)) + step * indices
    count = len(sparse.elements)
    _require(count == len(positions), f"has {count} elements, but its levels describe {len(positions)}")
    result = np.zeros(math.prod(shape), sparse.elements.dtype)
    result[positions] = sparse.elements
    return result.reshape(shape)


def _steps(sparse: Sparse, shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """Returns, for each level, the number of its indices, and the distance between their elements in the result."""
    rank, order, blocks = len(shape), sparse.order, sparse.blocks
    _require(
        len(order) == len(sparse.levels) == rank + len(blocks),
        f"has {len(sparse.levels)} levels and an order of {len(order)} for {rank} dimensions and {len(blocks)} blocks",
    )
    whole = sorted(order[:rank]) == [*range(rank)] and sorted(order[rank:]) == [*range(rank, len(order))]
    _require(whole, f"has the invalid dimension order {list(order)}")
    # LiteRT determines the sizes of blocks by their number, not by their position. The two differ only for three blocks
    # or more.
    _require(
        all(order[order[position]] == position for position in range(rank, len(order))),
        "has its blocks in an order that cannot be compiled",
    )
    increasing = all(one < other for one, other in zip((-1, *blocks), (*blocks, rank), strict=True))
    _require(increasing, f"has blocks in the dimensions {list(blocks)}, but {rank} dimensions")
    sizes = [1] * rank  # sizes of the blocks
    for number, position in enumerate(order[rank:], rank):
        level, axis = sparse.levels[number], blocks[position - rank]
        tiles = level.starts is None and level.size > 0 and shape[axis] % level.size == 0
        _require(tiles, f"has blocks that do not divide its dimension {axis} of size {shape[axis]}")
        sizes[axis] = level.size
    apart = [math.prod(shape[axis + 1 :]) for axis in range(rank)]
    outer = [(shape[axis] // sizes[axis], sizes[axis] * apart[axis]) for axis in order[:rank]]
    inner = [(sizes[axis], apart[axis]) for axis in (blocks[position - rank] for position in order[rank:])]
    return [*outer, *inner]


def _counts(starts: Array, indices: Array, nodes: int, size: int, number: int) -> Array:
    """Returns the number of indices below each node of the level above."""
    where = f"in dimension {number}"
    _require(len(starts) == nodes + 1, f"has {len(starts)} segments {where}, not {nodes + 1}")
    counts = np.diff(starts)
    whole = starts[0] == 0 and starts[-1] == len(indices) and bool((counts >= 0).all())
    _require(whole, f"has segments {where} that do not cover its {len(indices)} indices")
    inside = bool(((indices >= 0) & (indices < size)).all())
    _require(inside, f"has an index {where} that is not below {size}")
    within = np.ones(len(indices), np.bool_)  # true if the previous index has the same parent node
    within[starts[:-1][counts > 0]] = False
    rising = bool((np.diff(indices, prepend=-1)[within] > 0).all())
    _require(rising, f"has indices {where} that do not increase")
    return counts


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise MalformedModel(what)
