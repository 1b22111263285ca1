"""TFLite files with one changed tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as litert_schema

from service.compiler.importers.tflite.file.reader import read_model
from service.compiler.importers.tflite.model import Model, Tensor
from tests.support.tflite_builder import ModelBuilder, Quant, serialize

Bend = Callable[[ModelBuilder], None]


def file(bend: Bend = lambda builder: None) -> bytes:
    """Returns a file with `y = x + k` (ADD), where k is a constant, after `bend` has changed it."""
    builder = ModelBuilder()
    x = builder.tensor("x", (2, 3), np.int8, Quant(0.5, -3))
    k = builder.constant("k", np.arange(6, dtype=np.int8).reshape(2, 3), Quant([0.25, 0.5, 1.0], axis=1))
    y = builder.tensor("y", (2, 3), np.int8, Quant(1.0))
    builder.operator("ADD", [x, k], [y], litert_schema.AddOptionsT())
    builder.build([x], [y])
    bend(builder)
    return serialize(builder.model)


def tensor(name: str, bend: Bend = lambda builder: None) -> Tensor:
    model: Model = read_model(file(bend))
    (found,) = (tensor for tensor in model.tensors if tensor.name == name)
    return found


def setting(index: int, **fields: Any) -> Bend:
    """Returns a `bend` function that sets fields of a tensor. A name that begins with `q_` is a field of its
    quantization.
    """

    def bend(builder: ModelBuilder) -> None:
        table = builder.graph.tensors[index]
        for name, value in fields.items():
            owner = table.quantization if name.startswith("q_") else table
            setattr(owner, name.removeprefix("q_"), value)

    return bend


X, K, Y = 0, 1, 2
