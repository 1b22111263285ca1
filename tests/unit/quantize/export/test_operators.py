"""Each operator of a float model gives the same result in the converted ONNX file as in the imported module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from service.compiler.importers.detect import TFLITE
from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.onnx.importer import import_model as import_onnx
from service.compiler.importers.real import Real
from service.compiler.importers.tflite import import_model
from service.compiler.importers.windows import Windows, average, largest
from service.compiler.qnn import graph, ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE, ONNXRUNTIME
from service.core.errors import Unsupported
from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature, TensorSpec
from service.quantize.export.model import convert_module
from service.quantize.file.document import Document
from tests.support.examples import examples
from tests.support.float_operators import CASES, MORE
from tests.support.float_operators import SHAPE as ONNX_SHAPE
from tests.support.float_operators import network as onnx_network
from tests.support.tflite_real import OPERATORS, SHAPE, network

# Tolerances: float32 sums of some hundred terms in another order, and exp of another library.
RELATIVE, ABSOLUTE = 2e-5, 4e-6
ONNX_CASES = {**CASES, **MORE}


def agrees(imported: ImportedModel, inputs: Sequence[Array]) -> list[str]:
    """Asserts that ONNX Runtime and Octet compute the same results from the converted file as from `imported`. Returns
    the operators in the file.
    """
    data = convert_module(imported)
    expected = oracle.run(imported.module, get_mode(LITERT_REFERENCE), list(inputs))
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    theirs = session.run(None, {spec.name: x for spec, x in zip(imported.signature.inputs, inputs, strict=True)})
    again = import_onnx(data)
    assert again.signature.inputs == imported.signature.inputs
    assert [spec.name for spec in again.signature.outputs] == [spec.name for spec in imported.signature.outputs]
    ours = oracle.run(again.module, get_mode(ONNXRUNTIME), list(inputs))
    for wanted, one, other in zip(expected, theirs, ours, strict=True):
        assert wanted.shape == one.shape == other.shape
        np.testing.assert_allclose(one, wanted, RELATIVE, ABSOLUTE)
        np.testing.assert_allclose(other, wanted, RELATIVE, ABSOLUTE)
    return [node.op_type for node in Document(data).nodes]


# Operators that importers expand into several operators, and for which ONNX has a single one.
WHOLE = {
    "AVERAGE_POOL_2D": ["Transpose", "AveragePool", "Relu", "Transpose"],
    "HARD_SWISH": ["HardSwish"],
    "L2_NORMALIZATION": ["ReduceL2", "Max", "Div"],
    "LEAKY_RELU": ["LeakyRelu"],
    "LOGISTIC": ["Sigmoid"],
    "MAX_POOL_2D": ["Transpose", "MaxPool", "Relu", "Transpose"],
    "MEAN": ["ReduceMean"],
    "PRELU": ["PRelu"],
    "RELU6": ["Clip"],
    "RESIZE_BILINEAR": ["Transpose", "Resize", "Transpose"],
    "SOFTMAX": ["Mul", "Softmax"],
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_of_tflite(name: str) -> None:
    x = np.random.default_rng(0).normal(0, 2, SHAPE).astype(np.float32)
    found = agrees(import_model(network(name, stored=False)), [x])
    assert found == WHOLE.get(name, found)


@pytest.mark.parametrize("name", ONNX_CASES)
def test_an_operator_of_onnx(name: str) -> None:
    """Tests operators imported from ONNX, whose form differs from that of other importers."""
    x = np.random.default_rng(0).normal(0, 1, ONNX_SHAPE).astype(np.float32)
    agrees(import_onnx(onnx_network(ONNX_CASES[name], 0)), [x])


def of(make: Any, *shapes: Sequence[int]) -> ImportedModel:
    """Imports a float32 module whose result is `make(emit, *params)`."""
    params = [relax.Var(f"x{index}", relax.TensorType(list(shape), "float32")) for index, shape in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            end = builder.emit_output(make(builder.emit, *params))
        builder.emit_func_output(end)
    module = builder.get()
    made = graph.shape_of(graph.results_of(graph.main_of(module))[0])
    inputs = tuple(TensorSpec(f"in{index}", "FP32", tuple(shape)) for index, shape in enumerate(shapes))
    return ImportedModel(module, ModelSignature(inputs, (TensorSpec("out", "FP32", made),)), TFLITE)


MOVES: dict[str, Any] = {
    "concat": lambda emit, x: relax.op.concat([x, emit(relax.op.negative(x))], 3),
    "gather": lambda emit, x: relax.op.take(x, relax.const(np.array([2, 0], np.int64), "int64"), 2, mode="clip"),
    "largest": lambda emit, x: relax.op.max(x, [1]),
    "pad": lambda emit, x: relax.op.nn.pad(x, [0, 0, 1, 2, 0, 1, 3, 0], pad_value=-1.5),
    "reshape": lambda emit, x: relax.op.reshape(x, [2, 12, 5]),
    "slice": lambda emit, x: relax.op.strided_slice(x, [1, 3], [0, 1], [3, 5], [2, 1]),
    "smallest place": lambda emit, x: relax.op.astype(emit(relax.op.argmin(x, 3)), "float32"),
    "sum": lambda emit, x: relax.op.sum(x, [1, 3], keepdims=True),
    "tile": lambda emit, x: relax.op.tile(x, [1, 2, 1, 3]),
}


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (0, 3, 1, 2), (1, 0, 3, 2)])
def test_axes_follow_the_order_of_the_tensor(name: str, axes: tuple[int, ...]) -> None:
    """The axes are permuted first. The permutation becomes an operator only if it matters."""
    shape = [(2, 3, 4, 5)[axes.index(axis)] for axis in range(4)]
    imported = of(lambda emit, x: MOVES[name](emit, emit(relax.op.permute_dims(x, axes))), shape)
    x = np.random.default_rng(1).normal(0, 1, shape).astype(np.float32)
    assert agrees(imported, [x]).count("Transpose") <= 1


def test_a_broadcast_operand_gets_the_same_order() -> None:
    def make(emit: Any, x: relax.Expr, row: relax.Expr) -> relax.Expr:
        moved = emit(relax.op.permute_dims(x, [0, 2, 3, 1]))
        scaled = emit(relax.op.multiply(moved, relax.const(np.arange(3, dtype=np.float32))))
        return relax.op.permute_dims(emit(relax.op.add(scaled, row)), [0, 3, 1, 2])

    rng = np.random.default_rng(0)
    inputs = [rng.normal(0, 1, shape).astype(np.float32) for shape in ((1, 3, 4, 5), (5, 3))]
    agrees(of(make, (1, 3, 4, 5), (5, 3)), inputs)


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_successive_permutations_become_at_most_one(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 3), min_size=2, max_size=4))
    orders = data.draw(st.lists(st.permutations(range(len(shape))), min_size=1, max_size=4))

    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        for order in orders[:-1]:
            x = emit(relax.op.negative(emit(relax.op.permute_dims(x, order))))
        return relax.op.permute_dims(x, orders[-1])

    found = agrees(of(make, shape), [np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)])
    assert sum(each in ("Transpose", "Reshape") for each in found) <= 1


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_windows_of_any_geometry(data: st.DataObject) -> None:
    """Draws grouped and dilated convolutions and pools, with a different padding on each side."""
    kind = data.draw(st.sampled_from(["conv", "largest", "average", "average with padding"]))
    last = kind == "conv" or data.draw(st.booleans())  # true if channels are the last axis
    size, strides = (data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3))) for _ in range(2))
    dilation = data.draw(st.tuples(st.integers(1, 2), st.integers(1, 2))) if kind == "conv" else (1, 1)
    sides = data.draw(st.tuples(*(st.integers(0, size[index % 2] - 1) for index in range(4))))
    groups, rng = data.draw(st.integers(1, 3)), np.random.default_rng(0)

    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        if kind == "conv":
            weights = rng.normal(0, 1, (2 * groups, *size, 2)).astype(np.float32)
            bias = relax.const(rng.normal(0, 1, 2 * groups).astype(np.float32))
            kernel = relax.const(weights)
            return ops.real_conv2d(x, kernel, bias, strides=strides, padding=sides, dilation=dilation, groups=groups)
        made, found = Real(lambda part, _: emit(part), x), Windows((1, 2) if last else (2, 3), size, strides, sides)
        if kind == "largest":
            return largest(made, found)
        return average(made, found, sides if kind == "average with padding" else (0, 0, 0, 0))

    shape = (1, 7, 6, 2 * groups) if last else (1, 2 * groups, 7, 6)
    found = agrees(of(make, shape), [rng.normal(0, 1, shape).astype(np.float32)])
    names = {"conv": "Conv", "largest": "MaxPool" if size != (1, 1) else "Slice"}
    if kind in names or size != (1, 1):
        assert names.get(kind, "AveragePool") in found
    assert not {"Add", "Max"} & {*found}


def test_an_input_that_is_an_output_is_copied() -> None:
    assert agrees(of(lambda emit, x: x, (2, 3)), [np.ones((2, 3), np.float32)]) == ["Identity"]


def test_an_unsupported_operator_is_named() -> None:
    imported = of(lambda emit, x: relax.op.cumsum(x, 0), (2, 3))
    with pytest.raises(Unsupported, match="cumsum cannot be written as ONNX") as caught:
        convert_module(imported)
    assert caught.value.op == "cumsum"
    assert caught.value.tensor
    assert caught.value.hint


def test_a_quantized_model_is_refused() -> None:
    with pytest.raises(Unsupported, match="quantized already"):
        convert_module(import_model(network("ADD", stored=True)))
