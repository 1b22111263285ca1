"""A TFLite file as a benchmark looks at it: its multiply-accumulates, and variants of it that are made in place.

The variants change numbers in the flatbuffer and nothing else, so all weights are those of the original.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import tflite

_MULTIPLYING = {
    tflite.BuiltinOperator.CONV_2D,
    tflite.BuiltinOperator.DEPTHWISE_CONV_2D,
    tflite.BuiltinOperator.FULLY_CONNECTED,
}
_MIDDLE = 128  # the zero point of symmetric weights that are stored as uint8


def macs(data: bytes) -> int:
    """Multiply-accumulates of one call: those of convolutions and dense layers, with the padding's."""
    model = tflite.Model.GetRootAsModel(data, 0)
    graph = model.Subgraphs(0)
    total = 0
    for code, operator in _operators(model):
        if code not in _MULTIPLYING:
            continue
        output, weights = (_shape(graph, index) for index in (operator.Outputs(0), operator.Inputs(1)))
        # conv [O, H, W, I], depthwise [1, H, W, O], dense [O, I]
        products = weights[1:3] if code == tflite.BuiltinOperator.DEPTHWISE_CONV_2D else weights[1:]
        total += math.prod(output) * math.prod(products)
    return total


def with_batch(data: bytes, batch: int) -> bytes:
    """The same model for `batch` images at once.

    Raises:
        ValueError: an operator's constants would have to change too.
    """
    changed = bytearray(data)
    model = tflite.Model.GetRootAsModel(changed, 0)
    graph = model.Subgraphs(0)
    if any(code == tflite.BuiltinOperator.RESHAPE for code, _ in _operators(model)):
        raise ValueError("a reshape has its shape written down")
    for index in range(graph.TensorsLength()):
        tensor = graph.Tensors(index)
        constant = model.Buffers(tensor.Buffer()).DataLength() > 0
        if not constant and tensor.ShapeLength():
            tensor.ShapeAsNumpy()[0] = batch
    return bytes(changed)


def with_symmetric_weights(data: bytes) -> bytes:
    """The same model with the zero points of all weights in the middle of their type, and the weights moved along.

    Weights that leave the type are clipped, so it computes nearly the same.

    Raises:
        ValueError: its weights are symmetric already.
    """
    changed = bytearray(data)
    model = tflite.Model.GetRootAsModel(changed, 0)
    graph = model.Subgraphs(0)
    for code, operator in _operators(model):
        if code in _MULTIPLYING:
            weights = graph.Tensors(operator.Inputs(1))
            if weights.Type() != tflite.TensorType.UINT8:
                raise ValueError("weights that are not uint8 are symmetric already")
            zero_point = weights.Quantization().ZeroPointAsNumpy()
            values = model.Buffers(weights.Buffer()).DataAsNumpy()
            values[:] = np.clip(values.astype(np.int64) + _MIDDLE - zero_point[0], 0, 255)
            zero_point[:] = _MIDDLE
    return bytes(changed)


def _operators(model: Any) -> Iterator[tuple[int, Any]]:
    """(builtin code, operator) of the first subgraph."""
    graph = model.Subgraphs(0)
    for index in range(graph.OperatorsLength()):
        operator = graph.Operators(index)
        code = model.OperatorCodes(operator.OpcodeIndex())
        yield max(code.BuiltinCode(), code.DeprecatedBuiltinCode()), operator  # small codes are in the old field


def _shape(graph: Any, index: int) -> list[int]:
    tensor = graph.Tensors(index)
    return [tensor.Shape(axis) for axis in range(tensor.ShapeLength())]
