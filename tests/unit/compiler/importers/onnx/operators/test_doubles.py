"""Operators of float64 agree with ONNX Runtime to a few units in the last place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.models.arrays import Array
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference

RNG = np.random.default_rng(2)
X = RNG.normal(size=(3, 4))
UNARY = ("Abs", "Ceil", "Exp", "Floor", "Neg", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Softmax", "Tanh")
REDUCTIONS = ("ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare")
Write = Callable[[OnnxBuilder], str]


def vector(b: OnnxBuilder, *, positive: bool = False) -> str:
    values = RNG.normal(size=4)
    return b.constant(np.abs(values) + 0.1 if positive else values)


def two(op_type: str) -> Write:
    return lambda b: b.node(op_type, ["x", vector(b)])


CASES: dict[str, Write] = {
    **{name: (lambda b, name=name: b.node(name, ["x"])) for name in UNARY},  # type: ignore[misc]
    **{name: (lambda b, name=name: b.node(name, ["x"], keepdims=0)) for name in REDUCTIONS},  # type: ignore[misc]
    **{name: two(name) for name in ("Add", "Div", "Max", "Min", "Mul", "Sub", "Sum")},
    "BatchNormalization": lambda b: b.node(
        "BatchNormalization", ["x", vector(b), vector(b), vector(b), vector(b, positive=True)]
    ),
    "Clip": lambda b: b.node("Clip", ["x", b.constant(np.float64(-0.5)), b.constant(np.float64(0.25))]),
    "Gemm": lambda b: b.node("Gemm", ["x", b.constant(RNG.normal(size=(5, 4))), ""], transB=1, alpha=0.5),
    "LayerNormalization": lambda b: b.node("LayerNormalization", ["x", vector(b), vector(b)]),
    "LogSoftmax": lambda b: b.node("LogSoftmax", ["x"], axis=0),
    "MatMul": lambda b: b.node("MatMul", ["x", b.constant(RNG.normal(size=(4, 5)))]),
    "Mod": lambda b: b.node("Mod", ["x", vector(b, positive=True)], fmod=1),
    "Pow": lambda b: b.node("Pow", ["x", b.constant(np.float64(3))]),
    "Sqrt": lambda b: b.node("Reciprocal", [b.node("Sqrt", [b.node("Log", [b.node("Exp", [b.node("Abs", ["x"])])])])]),
    "Where": lambda b: b.node("Where", [b.node("Less", ["x", vector(b)]), "x", vector(b)]),
    "Cast": lambda b: b.node("Cast", [b.node("Cast", ["x"], to=1)], to=11),
}


def results(write: Write) -> tuple[Array, Array]:
    b = OnnxBuilder()
    b.input("x", "float64", [3, 4])
    b.node("Identity", [write(b)], ["y"])
    b.output("y", "float64")
    data = b.build()
    (result,) = oracle.run(import_model(data).module, get_mode(ONNXRUNTIME), [X])
    return result, Reference(data, optimized=True)([X])[0]


@pytest.mark.parametrize("case", CASES)
def test_an_operator_agrees_with_onnx_runtime(case: str) -> None:
    result, expected = results(CASES[case])
    assert result.dtype == expected.dtype == np.float64
    # Sums and functions differ by some units of 2**-52.
    np.testing.assert_allclose(result, expected, rtol=1e-13, atol=1e-14)
