"""Sparse constants. Any packing of an array is read as that array, and the error for an invalid packing contains the
reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from hypothesis import given, settings
from hypothesis import strategies as st

from service.compiler.importers.tflite import import_model
from service.compiler.importers.tflite.file.reader import read_model
from service.compiler.importers.tflite.file.sparse import dense
from service.compiler.importers.tflite.model import Level, Sparse
from service.core.errors import MalformedModel, OctetError, Unsupported
from service.core.models.arrays import Array
from tests.support.tflite_builder import ModelBuilder, serialize
from tests.support.tflite_sparse import dense_constant, pack, pruned, sum_with

TYPES = st.sampled_from([np.int32, np.uint16, np.uint8])


@st.composite
def packings(draw: st.DrawFn) -> tuple[Array, dict[str, Any]]:
    """Draws an array, and the arguments of `pack` for it."""
    rank = draw(st.integers(1, 4))
    axes = draw(st.lists(st.integers(0, rank - 1), max_size=2, unique=True))
    blocks = {axis: draw(st.integers(1, 4)) for axis in axes}
    shape = [draw(st.integers(1, 4)) * blocks.get(axis, 1) for axis in range(rank)]
    order = [*draw(st.permutations(range(rank))), *draw(st.permutations(range(rank, rank + len(blocks))))]
    compressed = draw(st.sets(st.integers(0, rank - 1)))
    data = pruned(shape, draw(st.sampled_from([0.1, 0.5, 1.0])), draw(st.integers(0, 99)))
    return data, {"order": order, "blocks": blocks, "compressed": compressed, "dtype": draw(TYPES)}


def stored(data: Array, **packing: Any) -> Sparse:
    (found,) = (each for each in read_model(sum_with(data, **packing)).tensors if each.name == "k_sparse")
    assert found.sparse is not None
    return found.sparse


@settings(max_examples=200, deadline=None)
@given(packings())
def test_any_packing_is_read_back(case: tuple[Array, dict[str, Any]]) -> None:
    data, packing = case
    elements, _ = pack(data, **packing)
    if 32 * len(elements) < data.size:
        return
    np.testing.assert_array_equal(dense(stored(data, **packing), data.shape), data)


numbers = st.lists(st.integers(-2, 9) | st.sampled_from([-(1 << 31), (1 << 31) - 1]), max_size=6)
levels = st.builds(Level, st.integers(-2, 4)) | st.builds(
    lambda starts, indices: Level(0, np.array(starts, np.int32), np.array(indices, np.int32)), numbers, numbers
)


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.integers(1, 4), max_size=3).map(tuple),
    st.lists(st.integers(-1, 4), max_size=5).map(tuple),
    st.lists(st.integers(-1, 3), max_size=2).map(tuple),
    st.lists(levels, max_size=5).map(tuple),
    st.integers(0, 20),
)
def test_any_other_packing_is_malformed_or_read(
    shape: tuple[int, ...], order: tuple[int, ...], blocks: tuple[int, ...], stored: tuple[Level, ...], count: int
) -> None:
    try:
        made = dense(Sparse(np.ones(count, np.float32), order, blocks, stored), shape)
    except MalformedModel:
        return
    assert made.shape == shape
    assert int(made.sum()) == count, "two stored elements were written to the same position"


DATA = np.array([[0, 1, 0, 0], [2, 0, 0, 3], [0, 0, 0, 0]], np.float32)


def bent(bend: Callable[[Any], None], **packing: Any) -> bytes:
    """Returns `DATA` with compressed rows after `bend` has changed the sparse tensor."""
    model = schema.ModelT.InitFromPackedBuf(sum_with(DATA, **{"compressed": {1}, **packing}))
    bend(model.subgraphs[0].tensors[0])
    return serialize(model)


def level(number: int, field: str, value: Any) -> Callable[[Any], None]:
    return lambda tensor: setattr(tensor.sparsity.dimMetadata[number], field, value)


def values(field: str, *numbers: int) -> Callable[[Any], None]:
    return level(1, field, schema.Int32VectorT(values=np.array(numbers, np.int32)))


def said(field: str, value: Any) -> Callable[[Any], None]:
    return lambda tensor: setattr(tensor.sparsity, field, value)


def four_elements(tensor: Any) -> None:
    values("arraySegments", 0, 1, 3, 4)(tensor)
    values("arrayIndices", 1, 0, 3, 0)(tensor)


@pytest.mark.parametrize(
    ("bend", "message"),
    [
        (level(0, "denseSize", 1 << 30), "has 1073741824 indices in dimension 0, which needs 3"),
        (level(0, "denseSize", -1), "has -1 indices in dimension 0"),
        (level(0, "format", 7), "has -1 indices in dimension 0"),
        (level(1, "arraySegments", None), "has 0 segments in dimension 1, not 4"),
        (level(1, "arraySegmentsType", 9), "has 0 segments in dimension 1, not 4"),
        (values("arraySegments", 0, 1, 3), "has 3 segments in dimension 1, not 4"),
        (values("arraySegments", 0, 1, 3, 9), "segments in dimension 1 that do not cover its 3 indices"),
        (values("arraySegments", 1, 1, 3, 3), "segments in dimension 1 that do not cover its 3 indices"),
        (values("arraySegments", 0, 3, 1, 3), "segments in dimension 1 that do not cover its 3 indices"),
        (values("arraySegments", 0, -1, 3, 3), "segments in dimension 1 that do not cover its 3 indices"),
        (values("arrayIndices", 1, 0, 4), "has an index in dimension 1 that is not below 4"),
        (values("arrayIndices", 1, 0, -1), "has an index in dimension 1 that is not below 4"),
        (values("arrayIndices", 1, 3, 3), "has indices in dimension 1 that do not increase"),
        (values("arrayIndices", 1, 3, 0), "has indices in dimension 1 that do not increase"),
        (values("arrayIndices", 1, 0), "do not cover its 2 indices"),
        (four_elements, "has 3 elements, but its levels describe 4"),
        (said("traversalOrder", [0, 0]), r"has the invalid dimension order \[0, 0\]"),
        (said("traversalOrder", [0, 7]), r"has the invalid dimension order \[0, 7\]"),
        (said("traversalOrder", [-1, 0]), r"has the invalid dimension order \[-1, 0\]"),
        (said("traversalOrder", [0]), "has 2 levels and an order of 1 for 2 dimensions and 0 blocks"),
        (said("traversalOrder", None), "has 2 levels and an order of 0 for 2 dimensions and 0 blocks"),
        (said("dimMetadata", None), "has 0 levels and an order of 2 for 2 dimensions and 0 blocks"),
        (said("blockMap", [0]), "has 2 levels and an order of 2 for 2 dimensions and 1 blocks"),
    ],
)
def test_an_invalid_packing_is_refused(bend: Callable[[Any], None], message: str) -> None:
    with pytest.raises(
        MalformedModel, match=f"DENSIFY #0 reads the sparse tensor k_sparse, which .*{message}"
    ) as error:
        import_model(bent(bend))
    assert (error.value.op, error.value.tensor) == ("DENSIFY #0", "k_sparse")


@pytest.mark.parametrize(
    ("bend", "message"),
    [
        (said("blockMap", [2]), r"has blocks in the dimensions \[2\], but 2 dimensions"),
        (said("blockMap", [-1]), r"has blocks in the dimensions \[-1\], but 2 dimensions"),
        (level(2, "denseSize", 3), "has blocks that do not divide its dimension 1 of size 4"),
        (level(2, "denseSize", 0), "has blocks that do not divide its dimension 1 of size 4"),
        (level(2, "format", 1), "has blocks that do not divide its dimension 1 of size 4"),
    ],
)
def test_blocks_that_do_not_tile_a_tensor_are_refused(bend: Callable[[Any], None], message: str) -> None:
    import_model(bent(lambda tensor: None, blocks={1: 2}))
    with pytest.raises(MalformedModel, match=message):
        import_model(bent(bend, blocks={1: 2}))


def test_the_order_of_three_blocks_that_litert_misreads_is_refused() -> None:
    data = pruned((4, 4, 4), 0.5)
    import_model(sum_with(data, blocks={0: 2, 1: 1, 2: 4}, order=(0, 1, 2, 5, 4, 3)))
    with pytest.raises(MalformedModel, match="blocks in an order that cannot be compiled"):
        import_model(sum_with(data, blocks={0: 2, 1: 1, 2: 4}, order=(0, 1, 2, 4, 5, 3)))


def test_a_small_file_does_not_become_a_large_tensor() -> None:
    def bend(tensor: Any) -> None:
        tensor.shape = [1 << 14, 1 << 14]

    with pytest.raises(Unsupported, match="is sparse, with only 3 of 268435456 elements") as error:
        import_model(bent(bend))
    assert error.value.tensor == "k_sparse"


def test_many_tensors_that_share_their_elements_are_refused() -> None:
    """Many tensors share one buffer, and each is as sparse as allowed."""
    builder = ModelBuilder()
    data = np.zeros((1 << 11, 32), np.float32)
    data[:, 0] = 1
    ends = [dense_constant(builder, f"k{i}", data, compressed={1}, dtype=np.uint16) for i in range(24)]
    for tensor in builder.graph.tensors[2::2]:
        tensor.buffer = builder.graph.tensors[0].buffer
        tensor.sparsity = builder.graph.tensors[0].sparsity
    builder.model.buffers = builder.model.buffers[:2]
    x, y = builder.tensor("x", data.shape, np.float32), builder.tensor("y", (24, *data.shape), np.float32)
    sums = []
    for i, end in enumerate(ends):
        sums.append(builder.tensor(f"s{i}", data.shape, np.float32))
        builder.operator("ADD", [x, end], [sums[-1]], schema.AddOptionsT())
    builder.operator("PACK", sums, [y], schema.PackOptionsT(valuesCount=24))
    with pytest.raises(OctetError, match=r"far larger than the file|overlap too often"):
        import_model(builder.build([x], [y]))


def test_only_densify_may_read_sparse_constants() -> None:
    model = schema.ModelT.InitFromPackedBuf(sum_with(DATA))
    model.subgraphs[0].operators[1].inputs = [1, 0]
    with pytest.raises(Unsupported, match="ADD #1 uses the tensor k_sparse, which is sparse"):
        import_model(serialize(model))


def test_densify_may_only_read_sparse_constants() -> None:
    with pytest.raises(MalformedModel, match="DENSIFY #0 reads the tensor k_sparse, which is not sparse"):
        import_model(bent(lambda tensor: setattr(tensor, "sparsity", None), compressed=()))
