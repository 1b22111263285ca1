"""Sparse constants in TFLite models. They are packed element by element, according to the definition in schema.fbs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from service.core.models.arrays import Array
from tests.support.tflite_builder import ModelBuilder, Quant

_VECTORS = {
    np.dtype(np.int32): (schema.SparseIndexVector.Int32Vector, schema.Int32VectorT),
    np.dtype(np.uint16): (schema.SparseIndexVector.Uint16Vector, schema.Uint16VectorT),
    np.dtype(np.uint8): (schema.SparseIndexVector.Uint8Vector, schema.Uint8VectorT),
}


def pack(
    data: Array,
    order: Sequence[int] | None = None,
    blocks: Mapping[int, int] | None = None,
    compressed: Collection[int] = (0,),
    dtype: type = np.int32,
) -> tuple[Array, Any]:
    """Returns the stored elements, and the `SparsityParametersT`.

    Args:
        order: the order of the levels; None for the natural order.
        blocks: dimension -> size of its blocks.
        compressed: the positions in `order` whose levels are compressed, with indices. Blocks are always dense.
        dtype: the type of segments and indices.
    """
    blocks = dict(sorted((blocks or {}).items()))
    order = [*range(data.ndim + len(blocks))] if order is None else list(order)
    halves = [size for axis, dim in enumerate(data.shape) for size in (dim // blocks.get(axis, 1), blocks.get(axis, 1))]
    positions = [2 * axis for axis in range(data.ndim)] + [2 * axis + 1 for axis in blocks]
    left = [position for position in range(2 * data.ndim) if position not in positions]  # dimensions of size 1
    tree = data.reshape(halves).transpose([*(positions[each] for each in order), *left])
    nodes, levels = [tree], []
    for level in range(len(order)):
        if level not in compressed:
            levels.append(schema.DimensionMetadataT(format=schema.DimensionType.DENSE, denseSize=tree.shape[level]))
            nodes = [part for node in nodes for part in node]
            continue
        kept = [[index for index, part in enumerate(node) if part.any()] for node in nodes]
        nodes = [node[index] for node, own in zip(nodes, kept, strict=True) for index in own]
        starts = np.cumsum([0, *map(len, kept)])
        levels.append(_compressed(starts, [index for own in kept for index in own], dtype))
    elements = np.array([node.reshape(()) for node in nodes], data.dtype)
    return elements, schema.SparsityParametersT(traversalOrder=order, blockMap=[*blocks], dimMetadata=levels)


def _compressed(starts: Sequence[int] | Array, indices: Sequence[int], dtype: type) -> Any:
    kind, make = _VECTORS[np.dtype(dtype)]
    return schema.DimensionMetadataT(
        format=schema.DimensionType.SPARSE_CSR,
        arraySegmentsType=kind,
        arraySegments=make(values=np.asarray(starts, dtype)),
        arrayIndicesType=kind,
        arrayIndices=make(values=np.asarray(indices, dtype)),
    )


def dense_constant(builder: ModelBuilder, name: str, data: Array, quant: Quant | None = None, **packing: Any) -> int:
    """Adds a sparse constant `{name}_sparse` and a DENSIFY of it, and returns the output of the DENSIFY."""
    elements, sparsity = pack(data, **packing)
    source = builder.constant(f"{name}_sparse", elements, quant)
    builder.graph.tensors[source].shape = np.asarray(data.shape, np.int32)
    builder.graph.tensors[source].sparsity = sparsity
    result = builder.tensor(name, data.shape, data.dtype, quant)
    builder.operator("DENSIFY", [source], [result], schema.DensifyOptionsT(), version=1)
    return result


def sum_with(data: Array, **packing: Any) -> bytes:
    """Returns a model of `x` plus a sparse float32 constant: `x` -> `y`."""
    builder = ModelBuilder()
    k = dense_constant(builder, "k", data, **packing)
    x, y = builder.tensor("x", data.shape, np.float32), builder.tensor("y", data.shape, np.float32)
    builder.operator("ADD", [x, k], [y], schema.AddOptionsT())
    return builder.build([x], [y])


def pruned(shape: Sequence[int], share: float, seed: int = 0) -> Array:
    """Returns random float32 weights. The fraction `share` of them is not zero."""
    rng = np.random.default_rng(seed)
    values = rng.normal(0, 0.3, shape) * (rng.random(shape) < share)
    return np.asarray(values, np.float32)


MODELS: Mapping[str, Callable[[], bytes]] = {
    "sparse": lambda: sum_with(pruned((4, 6), 0.3), compressed={0, 1}),
    "sparse, blocks": lambda: sum_with(
        pruned((4, 2, 6), 0.4), order=(2, 0, 1, 4, 3), blocks={0: 2, 2: 3}, compressed={1}, dtype=np.uint8
    ),
}
