"""Sequences and optional values, which the import resolves, compared with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.errors import MalformedModel, Unsupported
from tests.support.conformance import assert_compiled_equals
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference

Write = Callable[[OnnxBuilder], str]
X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


def model_of(write: Write, dtype: str = "float32") -> bytes:
    model = OnnxBuilder()
    model.input("x", "float32", list(X.shape))
    model.output(write(model), dtype)
    return model.build(17)


def whole(model: OnnxBuilder, value: int) -> str:
    return model.constant(value, "int64")


def parts(model: OnnxBuilder, axis: int = 1) -> str:
    return model.node("SplitToSequence", ["x", model.constant([1, 2, 3], "int64")], axis=axis)


def last_of_parts(model: OnnxBuilder) -> str:
    return model.node("SequenceAt", [parts(model), whole(model, -1)])


def parts_of_one_size(model: OnnxBuilder) -> str:
    split = model.node("SplitToSequence", ["x", whole(model, 4)], axis=1)
    return model.node("SequenceAt", [split, whole(model, 1)])


def rows_without_axis(model: OnnxBuilder) -> str:
    return model.node("ConcatFromSequence", [model.node("SplitToSequence", ["x"], axis=0, keepdims=0)], axis=0)


def stacked(model: OnnxBuilder) -> str:
    pair = model.node("SequenceConstruct", ["x", model.node("Neg", ["x"])])
    return model.node("ConcatFromSequence", [pair], axis=1, new_axis=1)


def inserted_and_erased(model: OnnxBuilder) -> str:
    sequence = model.node("SequenceEmpty", [])
    for name in ("Neg", "Abs", "Exp"):
        sequence = model.node("SequenceInsert", [sequence, model.node(name, ["x"]), whole(model, 0)])
    sequence = model.node("Identity", [model.node("SequenceErase", [sequence, whole(model, 1)])])
    return model.node("ConcatFromSequence", [sequence], axis=0)


def counted(model: OnnxBuilder) -> str:
    return model.node("SequenceLength", [parts(model)])


def optional_element(model: OnnxBuilder) -> str:
    return model.node("OptionalGetElement", [model.node("Optional", ["x"])])


@pytest.mark.parametrize(
    "write", [last_of_parts, parts_of_one_size, rows_without_axis, stacked, inserted_and_erased, optional_element]
)
def test_a_tensor_of_a_sequence(write: Write) -> None:
    data = model_of(write)
    (result,) = oracle.run(import_model(data).module, get_mode(ONNXRUNTIME), [X])
    np.testing.assert_array_equal(result, Reference(data, optimized=False)([X])[0])


def test_the_length_of_a_sequence_is_a_constant() -> None:
    (result,) = oracle.run(import_model(model_of(counted, "int64")).module, get_mode(ONNXRUNTIME), [X])
    assert result == 3


def test_a_compiled_model_has_no_sequences() -> None:
    module = import_model(model_of(inserted_and_erased)).module
    assert_compiled_equals(module, ONNXRUNTIME, [[X]], [], [oracle.run(module, get_mode(ONNXRUNTIME), [X])])


def beyond(model: OnnxBuilder) -> str:
    return model.node("SequenceAt", [parts(model), whole(model, 3)])


def computed(model: OnnxBuilder) -> str:
    position = model.node("Cast", [model.node("ReduceMax", ["x"], keepdims=0)], to=7)
    return model.node("SequenceAt", [parts(model), position])


def of_a_tensor(model: OnnxBuilder) -> str:
    return model.node("SequenceLength", ["x"])


def as_a_tensor(model: OnnxBuilder) -> str:
    return model.node("Neg", [parts(model)])


@pytest.mark.parametrize(
    ("write", "error", "message"),
    [
        (beyond, MalformedModel, "has position 3 in a sequence of 3 tensors"),
        (computed, Unsupported, "computes its input 1 at run time, which must be constant"),
        (of_a_tensor, MalformedModel, "reads a tensor, where it needs a sequence"),
        (as_a_tensor, MalformedModel, "reads the sequence t.*, where it needs a tensor"),
        (parts, Unsupported, "the output .* is a sequence, which cannot be sent"),
    ],
)
def test_other_sequences_are_refused(write: Write, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        import_model(model_of(write))


def half_of_a_sequence(model: OnnxBuilder) -> str:
    half = model.node("Cast", ["x"], to=10)
    sequence = model.node("SplitToSequence", [half, whole(model, 2)], axis=1)
    first = model.node("SequenceAt", [sequence, whole(model, 0)])
    sequence = model.node("SequenceInsert", [sequence, model.node("Exp", [first])])
    joined = model.node("ConcatFromSequence", [model.node("SequenceErase", [sequence, whole(model, 1)])], axis=0)
    return model.node("Cast", [model.node("Sqrt", [model.node("Abs", [joined])])], to=1)


def test_a_sequence_of_float16() -> None:
    data = model_of(half_of_a_sequence)
    (result,) = oracle.run(import_model(data).module, get_mode(ONNXRUNTIME), [X])
    np.testing.assert_array_equal(result, Reference(data, optimized=False)([X])[0])
