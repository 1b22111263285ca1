"""Shapes that a model computes of itself are constants before it is compiled."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from service.compiler.importers.tflite import import_model
from service.core.errors import MalformedModel, Unsupported
from tests.support.conformance import assert_oracle_equals_litert
from tests.support.tflite_builder import ModelBuilder, Quant
from tests.support.tflite_operator import Constant, End, ints, operator_model

X = Quant(0.1, 3)


def flattening(builder: ModelBuilder) -> tuple[int, int]:
    """What converters make of `reshape(x, [shape(x)[0], -1])`."""
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


def test_an_output_that_is_constant_is_refused() -> None:
    builder = ModelBuilder()
    x, _ = flattening(builder)
    with pytest.raises(Unsupported, match="the output target is the same for every input"):
        import_model(builder.build([x], [3]))


def test_a_shape_that_depends_on_the_input_is_refused() -> None:
    target, x = End((2,), np.int32), End((2, 6), np.int8, X)
    data = operator_model("RESHAPE", [x, target], [End((3, 4), np.int8, X)])
    with pytest.raises(Unsupported, match="computes its input 1 at run time"):
        import_model(data)


def test_as_many_outputs_as_parts() -> None:
    axis = Constant(np.array(0, np.int32))
    parts = [End((1, 3), np.int8, X)] * 3
    data = operator_model("SPLIT", [axis, End((4, 3), np.int8, X)], parts, schema.SplitOptionsT(numSplits=3))
    with pytest.raises(MalformedModel, match=r"splits axis 0 of \[4, 3\] into 3"):
        import_model(data)


def test_an_output_of_another_shape_or_dtype_is_malformed() -> None:
    for wrong in (End((5, 1), np.int32), End((2, 3), np.int64)):
        data = operator_model("TRANSPOSE", [End((3, 2), np.int32), ints(1, 0)], [wrong], schema.TransposeOptionsT())
        with pytest.raises(MalformedModel):
            import_model(data)


def batches_of_blocks(signature: list[int] | None) -> bytes:
    """SPACE_TO_BATCH_ND and a ReLU behind it, as converters write them for a batch of any size: they do not know how
    many images the first makes, and write 1."""
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


def test_a_size_that_the_inputs_decide_is_computed() -> None:
    data = batches_of_blocks([-1, 2, 2, 2])
    imported = import_model(data)
    assert imported.signature.outputs[0].shape == (4, 2, 2, 2)
    assert_oracle_equals_litert(data, samples=1)


@pytest.mark.parametrize("signature", [None, [1, 2, 2, 2], [-1, 2, 2, 3], [-1, 2, 2]])
def test_a_size_that_is_certain_has_to_agree(signature: list[int] | None) -> None:
    with pytest.raises(MalformedModel, match=r"makes a tensor of \[4, 2, 2, 2\]"):
        import_model(batches_of_blocks(signature))
