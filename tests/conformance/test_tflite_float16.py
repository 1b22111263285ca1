"""float16 tensors of TFLite files, compared with LiteRT in both modes."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from tests.support.conformance import assert_equals_litert
from tests.support.litert import MODES
from tests.support.tflite_builder import ModelBuilder
from tests.support.tflite_operator import End, operator_model

SHAPE = (3, 16)
HALVES = np.random.default_rng(0).normal(0, 8, SHAPE).astype(np.float16)
# operator, and the types that it reads and writes
CONVERSIONS = [
    ("DEQUANTIZE", np.float16, np.float32),
    ("CAST", np.float16, np.float32),
    ("CAST", np.float32, np.float16),
    ("CAST", np.float16, np.int32),
    ("CAST", np.int8, np.float16),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("name", "source", "target"), CONVERSIONS)
def test_conversion_equals_litert(name: str, source: type, target: type, mode: str) -> None:
    options = schema.CastOptionsT() if name == "CAST" else schema.DequantizeOptionsT()
    version = 5 if name == "CAST" else 3
    data = operator_model(name, [End(SHAPE, source)], [End(SHAPE, target)], options, version)
    assert_equals_litert(data, mode, [[HALVES.astype(source)]])


@pytest.mark.parametrize("mode", MODES)
def test_weights_behind_reshape_and_transpose_equal_litert(mode: str) -> None:
    """The converter inserts these operators between float16 weights and their DEQUANTIZE."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", (4, 12), np.float32), builder.tensor("y", (4, 12), np.float32)
    stored, shape = builder.constant("stored", HALVES), builder.constant("shape", np.array([12, 4], np.int32))
    order = builder.constant("order", np.array([1, 0], np.int32))
    shaped, turned = builder.tensor("shaped", (12, 4), np.float16), builder.tensor("turned", (4, 12), np.float16)
    weights = builder.tensor("weights", (4, 12), np.float32)
    builder.operator("RESHAPE", [stored, shape], [shaped], schema.ReshapeOptionsT(newShape=[12, 4]))
    builder.operator("TRANSPOSE", [shaped, order], [turned], schema.TransposeOptionsT())
    builder.operator("DEQUANTIZE", [turned], [weights], version=3)
    builder.operator("MUL", [x, weights], [y], schema.MulOptionsT())
    assert_equals_litert(builder.build([x], [y]), mode, [[np.linspace(-3, 3, 48, dtype=np.float32).reshape(4, 12)]])
