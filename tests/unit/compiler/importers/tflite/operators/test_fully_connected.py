"""Fully connected layers of TFLite."""

from __future__ import annotations

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from service.compiler.importers.tflite import import_model
from tests.support.operator_calls import call, names
from tests.support.tflite_builder import ModelBuilder, Quant
from tests.support.tflite_catalog import DENSE, MODELS, X8, Y8


def test_fully_connected_flattens_and_restores() -> None:
    flattened = import_model(MODELS["fully connected flattened"]())
    assert names(flattened) == ["reshape", "qnn.dense", "qnn.requantize"]
    kept = import_model(MODELS["fully connected keep dims"]())
    assert names(kept) == ["reshape", "qnn.dense", "qnn.requantize", "reshape"]
    assert kept.signature.outputs[0].shape == (2, 3, 4)


def test_omitted_optional_bias() -> None:
    builder = ModelBuilder()
    x, y = builder.tensor("x", (2, 16), np.int8, X8), builder.tensor("y", (2, 4), np.int8, Y8)
    w = builder.constant("w", DENSE, Quant(0.02))
    builder.operator("FULLY_CONNECTED", [x, w, -1], [y], schema.FullyConnectedOptionsT())
    assert len(call(import_model(builder.build([x], [y])), "qnn.dense").args) == 2
