"""Operators that compare real values treat NaN like the reference runtimes, in the oracle and in compiled code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from service.compiler.importers.onnx.importer import import_model as import_onnx
from service.compiler.importers.tflite import import_model as import_tflite
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE, ONNXRUNTIME
from service.core.models.arrays import Array
from tests.support import litert
from tests.support.conformance import assert_compiled_equals
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference
from tests.support.tflite_builder import ModelBuilder

import tvm  # isort: skip

NAN, INFINITY = np.nan, np.inf
X = np.array([NAN, -NAN, INFINITY, -INFINITY, -0.0, 0, -1, 3, 1, NAN, -2, 2, NAN, -1, 0.5, NAN, NAN], np.float32)
OTHER = np.array([1, NAN, NAN, NAN, 0, -0.0, NAN, NAN, 0, -3, NAN, 1, NAN, -1, -5, 8, 9], np.float32)


def of_nodes(op_type: str, *constants: float) -> Callable[[OnnxBuilder, str, str], str]:
    def make(model: OnnxBuilder, x: str, other: str) -> str:
        return model.node(op_type, [x, *(model.constant(value, "float32") for value in constants)])

    return make


ONNX: dict[str, Callable[[OnnxBuilder, str, str], str]] = {
    "Clip": of_nodes("Clip", -2.0, 2.0),
    "HardSigmoid": of_nodes("HardSigmoid"),
    "Max": lambda model, x, other: model.node("Max", [x, other]),
    "Max of a constant": of_nodes("Max", 0.5),
    "Min": lambda model, x, other: model.node("Min", [x, other]),
    "ReduceMax": lambda model, x, other: model.node("ReduceMax", [x], axes=[0, 2]),
    "ReduceMin": lambda model, x, other: model.node("ReduceMin", [x], axes=[2], keepdims=0),
    "Relu": of_nodes("Relu"),
    "Sign": of_nodes("Sign"),
}


def assert_equals(module: tvm.IRModule, numerics: str, inputs: Sequence[Array], expected: Array) -> None:
    (ours,) = oracle.run(module, get_mode(numerics), inputs)
    np.testing.assert_allclose(ours, expected, 1e-6, 1e-7)
    assert_compiled_equals(module, numerics, [inputs], [], [[ours]])


@pytest.mark.parametrize("rows", [False, True], ids=["alone", "in a kernel of rows"])
@pytest.mark.parametrize("name", ONNX)
def test_onnx_runtime(name: str, rows: bool) -> None:
    model, inputs = OnnxBuilder(), [X[None, None], OTHER[None, None]]
    x, other = (model.input(each, "float32", (1, 1, X.size)) for each in ("x", "other"))
    if rows:
        x = model.node("Softmax", [model.node("Add", [x, other])], axis=-1)
    model.output(ONNX[name](model, x, other), "float32")
    data = model.build()
    (expected,) = Reference(data, optimized=True)(inputs)
    assert np.isnan(expected).any()
    assert_equals(import_onnx(data).module, ONNXRUNTIME, inputs, expected)


def test_a_row_of_infinities_has_an_infinite_extreme() -> None:
    model, x = OnnxBuilder(), np.full((1, 2, 3), -INFINITY, np.float32)
    model.output(model.node("ReduceMax", [model.input("x", "float32", x.shape)], axes=[1]), "float32")
    data = model.build()
    (expected,) = Reference(data, optimized=True)([x])
    assert_equals(import_onnx(data).module, ONNXRUNTIME, [x], expected)


TFLITE = {
    "ADD": schema.AddOptionsT(fusedActivationFunction=1),
    "MAXIMUM": schema.MaximumMinimumOptionsT(),
    "MINIMUM": schema.MaximumMinimumOptionsT(),
    "RELU": None,
    "RELU6": None,
}


@pytest.mark.parametrize("name", TFLITE)
def test_litert(name: str) -> None:
    """LiteRT computes MAXIMUM and MINIMUM by one comparison and one selection. So the result is NaN only if the second
    operand is NaN.
    """
    builder, inputs = ModelBuilder(), [X[None], OTHER[None]][: 1 if name.startswith("RELU") else 2]
    operands = [builder.tensor(f"x{index}", each.shape, np.float32) for index, each in enumerate(inputs)]
    y = builder.tensor("y", (1, X.size), np.float32)
    builder.operator(name, operands, [y], TFLITE[name])
    data = builder.build(operands, [y])
    (expected,) = litert.run(litert.interpreter(data), inputs)
    assert np.isnan(expected).any()
    assert_equals(import_tflite(data).module, LITERT_REFERENCE, inputs, expected)
