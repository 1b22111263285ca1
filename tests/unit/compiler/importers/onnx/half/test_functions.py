"""Operators without a float16 kernel that ONNX defines by other operators are computed by their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference

CASES = [
    ("Gelu", 20, {}),
    ("Gelu", 20, {"approximate": "tanh"}),
    ("LeakyRelu", 15, {"alpha": 0.01}),
    ("LeakyRelu", 16, {"alpha": 0.01}),
    ("LogSoftmax", 13, {}),
    ("LogSoftmax", 12, {}),
    ("ReduceL1", 18, {}),
    ("ReduceL2", 18, {"keepdims": 0}),
    ("ReduceLogSum", 18, {}),
    ("ReduceSumSquare", 18, {}),
    ("Softmax", 11, {"axis": 1}),
    ("Softmax", 13, {"axis": 1}),
    ("Softmax", 17, {}),
    ("Swish", 24, {"alpha": 1.1}),
    ("PRelu", 15, {}),
    ("PRelu", 16, {}),
]


@pytest.mark.parametrize(("op_type", "opset", "attributes"), CASES)
def test_the_result_is_that_of_onnx_runtime(op_type: str, opset: int, attributes: dict[str, Any]) -> None:
    b = OnnxBuilder()
    x = (
        b.node("Abs", [b.input("x", "float16", [3, 8])])
        if op_type == "ReduceLogSum"
        else b.input("x", "float16", [3, 8])
    )
    slope = [b.constant(np.array([0.1], np.float16))] if op_type == "PRelu" else []
    b.node(op_type, [x, *slope], ["y"], **attributes)
    b.output("y", "float16")
    data, value = b.build(opset), np.random.default_rng(1).normal(size=(3, 8)).astype(np.float16)
    (expected,) = Reference(data, optimized=True)([value])
    (result,) = oracle.run(import_model(data).module, get_mode(ONNXRUNTIME), [value])
    np.testing.assert_array_equal(result, expected)
