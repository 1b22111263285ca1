"""If a model computes a shape from its own shapes, it becomes a constant before the model is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from service.compiler.importers.tflite import import_model
from service.core.errors import MalformedModel, Unsupported
from tests.support.conformance import assert_oracle_equals_litert
from tests.support.tflite_builder import ModelBuilder, Quant, serialize
from tests.support.tflite_operator import Constant, End, ints, operator_model

X = Quant(0.1, 3)
NO_INTS = Constant(np.zeros(0, np.int32))
NO_PAIRS = Constant(np.zeros((0, 2), np.int32))


def flattening(builder: ModelBuilder) -> tuple[int, int]:
    """Adds `reshape(x, [shape(x)[0], -1])` in the form that converters write."""
    x = builder.tensor("x", (2, 3, 4), np.int8, X)
    shape, batch = builder.tensor("shape", (3,), np.int32), builder.tensor("batch", (), np.int32)
    target, y = builder.tensor("target", (2,), np.int32), builder.tensor("y", (2, 12), np.int8, X)
    zero, one = (builder.constant(f"c{value}", np.array([value], np.int32)) for value in (0, 1))
    rest = builder.constant("rest", np.array(-1, np.int32))
    builder.operator("SHAPE", [x], [shape], schema.ShapeOptionsT(outType=schema.TensorType.INT32))
    builder.operator("STRIDED_SLICE", [shape, zero, one, one], [batch], schema.StridedSliceOptionsT(shrinkAxisMask=1))
    builder.operator("PACK", [batch, rest], [target], schema.PackOptionsT(valuesCount=2, axis=0))
    builder.operator("RESHAPE", [x, target], [y])
    return x, y


def test_a_computed_shape_is_folded() -> None:
    builder = ModelBuilder()
    x, y = flattening(builder)
    data = builder.build([x], [y])
    bindings = import_model(data).module["main"].body.blocks[0].bindings
    assert [binding.value.op.name for binding in bindings if hasattr(binding.value, "op")] == ["relax.reshape"]
    assert_oracle_equals_litert(data, samples=1)


def test_an_output_computed_only_from_constants_is_returned() -> None:
    builder = ModelBuilder()
    x, y = flattening(builder)
    assert_oracle_equals_litert(builder.build([x], [3, y]), samples=1)


def test_a_shape_that_depends_on_the_input_is_refused() -> None:
    target, x = End((2,), np.int32), End((2, 6), np.int8, X)
    data = operator_model("RESHAPE", [x, target], [End((3, 4), np.int8, X)])
    with pytest.raises(Unsupported, match="computes its input 1 at run time"):
        import_model(data)


def test_the_number_of_outputs_must_equal_the_number_of_parts() -> None:
    axis = Constant(np.array(0, np.int32))
    parts = [End((1, 3), np.int8, X)] * 3
    data = operator_model("SPLIT", [axis, End((4, 3), np.int8, X)], parts, schema.SplitOptionsT(numSplits=3))
    with pytest.raises(MalformedModel, match=r"cannot split axis 0 of shape \[4, 3\] into 3 equal parts"):
        import_model(data)


def test_an_output_of_another_dtype_is_malformed() -> None:
    wrong = End((2, 3), np.int64)
    data = operator_model("TRANSPOSE", [End((3, 2), np.int32), ints(1, 0)], [wrong], schema.TransposeOptionsT())
    with pytest.raises(MalformedModel):
        import_model(data)


@pytest.mark.parametrize("declared", [(5, 1), (6,), (1, 2, 3)])
def test_an_output_has_the_shape_that_litert_computes(declared: tuple[int, ...]) -> None:
    ends: list[End | Constant] = [End((3, 2), np.int32), ints(1, 0)]
    data = operator_model("TRANSPOSE", ends, [End(declared, np.int32)], schema.TransposeOptionsT())
    assert import_model(data).signature.outputs[0].shape == (2, 3)
    assert_oracle_equals_litert(data, samples=1)


def batches_of_blocks(signature: list[int] | None) -> bytes:
    """Returns a model with SPACE_TO_BATCH_ND and a ReLU, in the form that converters write for a variable batch size.
    Converters do not know how many images the first operator returns, and write 1.
    """
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 4, 4, 2), np.int8, X)
    between, y = (builder.tensor(name, (1, 2, 2, 2), np.int8, X) for name in ("between", "y"))
    block = builder.constant("block", np.array([2, 2], np.int32))
    none = builder.constant("none", np.zeros((2, 2), np.int32))
    builder.operator("SPACE_TO_BATCH_ND", [x, block, none], [between])
    builder.operator("RELU", [between], [y])
    for index in (between, y):
        builder.graph.tensors[index].shapeSignature = signature
    return builder.build([x], [y])


def test_a_size_that_depends_on_the_inputs_is_computed() -> None:
    data = batches_of_blocks([-1, 2, 2, 2])
    imported = import_model(data)
    assert imported.signature.outputs[0].shape == (4, 2, 2, 2)
    assert_oracle_equals_litert(data, samples=1)


@pytest.mark.parametrize("signature", [None, [1, 2, 2, 2], [-1, 2, 2, 3], [-1, 2, 2]])
def test_a_declared_size_is_ignored(signature: list[int] | None) -> None:
    assert_oracle_equals_litert(batches_of_blocks(signature), samples=1)


# Operators on a scalar, with constants without elements. (With REVERSE_V2 and TRANSPOSE, LiteRT's process ends.)
ON_SCALARS: dict[str, tuple[list[Constant], Any]] = {
    "BROADCAST_TO": ([NO_INTS], schema.BroadcastToOptionsT()),
    "MEAN": ([NO_INTS], schema.ReducerOptionsT()),
    "PAD": ([NO_PAIRS], schema.PadOptionsT()),
    "REDUCE_MAX": ([NO_INTS], schema.ReducerOptionsT()),
    "RESHAPE": ([NO_INTS], None),
    "SLICE": ([NO_INTS, NO_INTS], schema.SliceOptionsT()),
    "STRIDED_SLICE": ([NO_INTS, NO_INTS, NO_INTS], schema.StridedSliceOptionsT()),
    "SUM": ([NO_INTS], schema.ReducerOptionsT()),
    "TILE": ([NO_INTS], schema.TileOptionsT()),
}


@pytest.mark.parametrize("name", ON_SCALARS)
def test_constants_without_elements_are_read_as_litert_reads_them(name: str) -> None:
    """The buffers of such constants are empty, like those of computed tensors."""
    parameters, options = ON_SCALARS[name]
    data = operator_model(name, [End((), np.int8, X), *parameters], [End((), np.int8, X)], options)
    assert_oracle_equals_litert(data, samples=1)


@pytest.mark.parametrize("name", ["MEAN", "SUM", "REDUCE_MIN"])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_reduction_without_axes_equals_litert(name: str, dtype: type) -> None:
    ends = [End((2, 3), dtype, None if dtype is np.float32 else X) for _ in range(2)]
    assert_oracle_equals_litert(
        operator_model(name, [ends[0], NO_INTS], ends[1:], schema.ReducerOptionsT(keepDims=True)), samples=2
    )


def test_empty_parts_are_left_out_of_a_concatenation() -> None:
    parts: list[End | Constant] = [
        End((2, 3), np.int8, X),
        Constant(np.zeros((2, 0), np.int8), X),
        End((2, 1), np.int8, X),
    ]
    data = operator_model("CONCATENATION", parts, [End((2, 4), np.int8, X)], schema.ConcatenationOptionsT(axis=1))
    assert_oracle_equals_litert(data, samples=1)


def ends_model(outputs: Callable[[int, int, int], list[int]]) -> bytes:
    """Returns a model with the tensors `x`, `y = x + k` and a constant `k`. `outputs` lists which of them are the
    model's outputs.
    """
    builder = ModelBuilder()
    x, y = (builder.tensor(name, (2, 3), np.int8, X) for name in "xy")
    k = builder.constant("k", np.arange(6, dtype=np.int8).reshape(2, 3), X)
    builder.operator("ADD", [x, k], [y], schema.AddOptionsT())
    return builder.build([x], outputs(x, y, k))


@pytest.mark.parametrize(
    "outputs",
    [
        lambda x, y, k: [y, y],
        lambda x, y, k: [x, y],
        lambda x, y, k: [k, y],
        lambda x, y, k: [x, x, y, k, y, k],
        lambda x, y, k: [x],
        lambda x, y, k: [k],
    ],
)
def test_outputs_may_be_inputs_constants_and_repeated(outputs: Callable[[int, int, int], list[int]]) -> None:
    data = ends_model(outputs)
    names = [spec.name for spec in import_model(data).signature.outputs]
    assert len(set(names)) == len(names)
    assert_oracle_equals_litert(data, samples=2)


def test_each_name_of_a_repeated_output_is_kept() -> None:
    builder = ModelBuilder()
    x, y = (builder.tensor(name, (2, 3), np.int8, X) for name in "xy")
    builder.operator("RELU", [x], [y])
    builder.build([x], [y, y])
    maps = [schema.TensorMapT(name=name, tensorIndex=y) for name in ("first", "second")]
    builder.signature({"x": x}, {})
    builder.model.signatureDefs[0].outputs = maps
    assert [spec.name for spec in import_model(serialize(builder.model)).signature.outputs] == ["first", "second"]


def test_options_that_the_file_leaves_out_are_zeros() -> None:
    ends = [End((2, 3), np.int8, X), End((2, 3), np.int8, X)]
    assert_oracle_equals_litert(operator_model("ADD", ends, [End((2, 3), np.int8, Quant(0.3))]), samples=1)


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64])
def test_indices_of_each_dtype_gather(dtype: type) -> None:
    indices = Constant(np.array([2, 0, 1], dtype))
    ends: list[End | Constant] = [End((3, 2), np.int8, X), indices]
    assert_oracle_equals_litert(
        operator_model("GATHER", ends, [End((3, 2), np.int8, X)], schema.GatherOptionsT()), samples=1
    )
