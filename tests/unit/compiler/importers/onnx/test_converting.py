"""Tensors without elements are computed while importing, so that no compiled operator has one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference

NOTHING = np.zeros(0, np.int64)
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def nothing(b: OnnxBuilder) -> str:
    """Returns a computed tensor of `[2, 0]`."""
    return b.node("Slice", ["x", *(b.constant([each]) for each in (0, 0, 1))])


def join_around(b: OnnxBuilder, part: str) -> str:
    return b.node("Concat", [part, "x", part], axis=1)


CASES: dict[str, Callable[[OnnxBuilder], str]] = {
    "slice": lambda b: join_around(b, nothing(b)),
    "constant": lambda b: join_around(b, b.constant(np.zeros((2, 0), np.float32))),
    "gather": lambda b: join_around(b, b.node("Gather", ["x", b.constant(np.zeros(0, np.int64))], axis=1)),
    "split": lambda b: join_around(b, b.node("Split", ["x", b.constant([0, 3])], ["none", "all"], axis=1)),
    "function": lambda b: join_around(b, b.node("Exp", [b.node("Add", [nothing(b), b.constant(np.float32(1))])])),
    "transpose": lambda b: join_around(b, b.node("Transpose", [b.node("Transpose", [nothing(b)])])),
    "product": lambda b: b.node("MatMul", [nothing(b), b.constant(np.zeros((0, 4), np.float32))]),
    "sum": lambda b: b.node("Add", ["x", b.node("ReduceSum", [nothing(b), b.constant([1])])]),
    "shape": lambda b: b.node(
        "Reshape", ["x", b.node("Concat", [b.constant(np.zeros(0, np.int64)), b.constant([6])], axis=0)]
    ),
    "scalar": lambda b: b.node("Reshape", [b.node("ReduceSum", ["x"]), b.constant(NOTHING)]),
}


@pytest.mark.parametrize("case", CASES)
def test_the_values_are_those_of_onnx_runtime(case: str) -> None:
    b = OnnxBuilder()
    b.input("x", "float32", [2, 3])
    b.node("Identity", [CASES[case](b)], ["y"])
    b.output("y", "float32")
    data = b.build()
    module = import_model(data).module
    (result,) = oracle.run(module, get_mode(ONNXRUNTIME), [X])
    np.testing.assert_array_equal(result, Reference(data, optimized=True)([X])[0])
