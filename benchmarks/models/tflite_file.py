"""Analyses a TFLite file for the benchmarks: counts its multiply-accumulates, and creates variants of it.

A variant differs from the original only in numbers within the flatbuffer, such as the batch size or zero points.
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
    """Counts the multiply-accumulates of one call, including padding: of convolutions, dense layers, products and
    LSTMs.

    A size that the file leaves open counts as 1, the value in the file.
    """
    model = tflite.Model.GetRootAsModel(data, 0)
    graph = model.Subgraphs(0)
    return sum(_products(graph, code, operator) for code, operator in _operators(model))


def _products(graph: Any, code: int, operator: Any) -> int:
    match code:
        case tflite.BuiltinOperator.DEPTHWISE_CONV_2D:  # weights [1, H, W, O]
            return math.prod(_output(graph, operator)) * math.prod(_input(graph, operator, 1)[1:3])
        case tflite.BuiltinOperator.CONV_2D | tflite.BuiltinOperator.FULLY_CONNECTED:  # [O, H, W, I], [O, I]
            return math.prod(_output(graph, operator)) * math.prod(_input(graph, operator, 1)[1:])
        case tflite.BuiltinOperator.BATCH_MATMUL:  # [..., M, K] by [..., K, N]; either may be transposed
            output, rows, columns = _output(graph, operator), _input(graph, operator, 0), _input(graph, operator, 1)
            return math.isqrt(math.prod(rows[-2:]) * math.prod(columns[-2:]) * math.prod(output[-2:])) * math.prod(
                output[:-2]
            )
        case tflite.BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM:  # four gates [units, features], [units, units]
            steps = math.prod(_input(graph, operator, 0)[:-1])
            gates = [_input(graph, operator, index) for index in range(1, 9) if operator.Inputs(index) >= 0]
            return steps * sum(map(math.prod, gates))
        case _:
            return 0


def with_batch(data: bytes, batch: int) -> bytes:
    """Returns the same model for `batch` images at once.

    Raises:
        ValueError: an operator's constants would have to change too.
    """
    changed = bytearray(data)
    model = tflite.Model.GetRootAsModel(changed, 0)
    graph = model.Subgraphs(0)
    if any(code == tflite.BuiltinOperator.RESHAPE for code, _ in _operators(model)):
        raise ValueError("a reshape has a constant shape, which contains the old batch size")
    for index in range(graph.TensorsLength()):
        tensor = graph.Tensors(index)
        constant = model.Buffers(tensor.Buffer()).DataLength() > 0
        if not constant and tensor.ShapeLength():
            tensor.ShapeAsNumpy()[0] = batch
    return bytes(changed)


def with_symmetric_weights(data: bytes) -> bytes:
    """Returns the same model with the zero points of all weights in the middle of their type, and the weights shifted
    accordingly.

    Weights that exceed the type are clipped, so the results are nearly the same.

    Raises:
        ValueError: the model's weights are symmetric already.
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
    """Yields (builtin code, operator) for the first subgraph."""
    graph = model.Subgraphs(0)
    for index in range(graph.OperatorsLength()):
        operator = graph.Operators(index)
        code = model.OperatorCodes(operator.OpcodeIndex())
        yield max(code.BuiltinCode(), code.DeprecatedBuiltinCode()), operator  # small codes are in the older field


def _output(graph: Any, operator: Any) -> list[int]:
    return _shape(graph, operator.Outputs(0))


def _input(graph: Any, operator: Any, index: int) -> list[int]:
    return _shape(graph, operator.Inputs(index))


def _shape(graph: Any, index: int) -> list[int]:
    tensor = graph.Tensors(index)
    return [tensor.Shape(axis) for axis in range(tensor.ShapeLength())]
