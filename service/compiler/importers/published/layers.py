"""Adds the layers after a model to its ONNX file: pooling, dense layers and normalizations.

protobuf merges two encodings of a message that follow each other, so a model is extended by bytes at the end of its
file. The additional output `sentence_embedding` has float32 `[batch, size]`. Because the layers are part of the file,
they are compiled, compared with the reference runtime, cached and downloaded like the rest of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from service.compiler.importers.onnx.file import encoding, protobuf
from service.compiler.importers.published.modules import Dense, Layer, LayerNorm, Steps
from service.core.errors import InvalidInput, Unsupported
from service.core.models.arrays import Array
from service.core.models.text import Pooling, Side

POOLED = "sentence_embedding"  # the output's name in the exports of Optimum
_PREFIX = "sentence_embedding/"
_GRAPH, _NODE, _INITIALIZER, _OUTPUT = 7, 1, 5, 12  # fields of ModelProto and GraphProto
_FLOAT, _LEAST_OPSET = 1, 11
_TINY = 1e-12  # the least norm by which torch's `normalize` divides
_EPSILON = 1e-5  # the default of torch's LayerNorm
_SMALL_SLOPE = 0.01  # the default of torch's LeakyReLU


def layers_after(steps: Steps, tokens: str, mask: str, opset: int, side: Side) -> bytes:
    """Returns the bytes to append to an ONNX file.

    Args:
        steps: the pooling and the layers.
        tokens: the output with the vectors of the tokens, `[batch, tokens, size]`.
        mask: the input that is 1 for the tokens of the text and 0 for padding, `[batch, tokens]`.
        opset: the version of ONNX's operators that the file uses.
        side: the end at which texts are padded.

    Raises:
        InvalidInput: the layers have weights of shapes that do not fit.
        Unsupported: `opset` is too old.
    """
    if opset < _LEAST_OPSET:
        raise Unsupported(
            f"the file uses version {opset} of ONNX's operators, but the layers after the model need {_LEAST_OPSET}",
            hint="export the model again with a newer operator set",
        )
    graph = _Graph(opset)
    value = _pooled(graph, steps.pooling, tokens, mask, side)
    for layer in steps.layers:
        value = _add(graph, layer, value)
    graph.node("Identity", [value], POOLED)
    sizes = [len(each.weight) for each in steps.layers if isinstance(each, Dense | LayerNorm)]
    graph.fields.append(protobuf.message(_OUTPUT, encoding.value_info(POOLED, "float32", ["batch", sizes[-1]])))
    return protobuf.message(_GRAPH, b"".join(graph.fields))


class _Graph:
    """The fields of a GraphProto that are added."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.fields: list[bytes] = []
        self._count = 0

    def constant(self, values: Array | float) -> str:
        array = np.asarray(values, None if isinstance(values, np.ndarray) else np.float32)
        name = self._new_name()
        self.fields.append(protobuf.message(_INITIALIZER, encoding.tensor(name, array.dtype.name, array)))
        return name

    def node(self, op_type: str, inputs: Sequence[str], output: str = "", **attributes: encoding.Attribute) -> str:
        name = output or self._new_name()
        self.fields.append(protobuf.message(_NODE, encoding.node(op_type, inputs, name, **attributes)))
        return name

    def reduced(self, op_type: str, value: str, axis: int, *, keepdims: bool = False) -> str:
        """Adds a reduction. Its axes became an input in version 13 of ONNX for sums, and in 18 for the others."""
        if self.opset >= (13 if op_type == "ReduceSum" else 18):
            axes = self.constant(np.array([axis], np.int64))
            return self.node(op_type, [value, axes], keepdims=int(keepdims))
        return self.node(op_type, [value], axes=(axis,), keepdims=int(keepdims))

    def _new_name(self) -> str:
        self._count += 1
        return f"{_PREFIX}{self._count}"


def _pooled(graph: _Graph, ways: Sequence[Pooling], tokens: str, mask: str, side: Side) -> str:
    """Returns the joined vectors, `[batch, ways * size]`. The arithmetic is that of `runtime.results.pooling`."""
    weights = graph.node("Cast", [mask], to=_FLOAT)  # [batch, tokens]
    count = graph.reduced("ReduceSum", weights, 1, keepdims=True)  # [batch, 1]

    def column(value: str) -> str:
        return graph.node("Reshape", [value, graph.constant(np.array([0, -1, 1], np.int64))])

    def total(weight: str) -> str:
        return graph.reduced("ReduceSum", graph.node("Mul", [tokens, column(weight)]), 1)

    def positions() -> str:
        """Returns 1 for the first token of the text, 2 for the second, …; 0 for padding."""
        running = graph.node("CumSum", [weights, graph.constant(np.array(1, np.int64))])
        return graph.node("Mul", [running, weights])

    def at(position: str) -> str:
        """Returns the vector of the token at a position, which is the sum of this vector and of zeros."""
        return total(graph.node("Cast", [graph.node("Equal", [positions(), position])], to=_FLOAT))

    found = []
    for way in ways:
        match way:
            case Pooling.MEAN:
                found.append(graph.node("Div", [total(weights), count]))
            case Pooling.MEAN_SQRT:
                found.append(graph.node("Div", [total(weights), graph.node("Sqrt", [count])]))
            case Pooling.WEIGHTED_MEAN:
                places = positions()
                found.append(graph.node("Div", [total(places), graph.reduced("ReduceSum", places, 1, keepdims=True)]))
            case Pooling.MAX:
                is_text = graph.node("Greater", [column(weights), graph.constant(0.0)])
                kept = graph.node("Where", [is_text, tokens, graph.constant(-math.inf)])
                found.append(graph.reduced("ReduceMax", kept, 1))
            case Pooling.LAST:
                found.append(at(count))
            case Pooling.CLS if side is Side.RIGHT:
                found.append(graph.node("Gather", [tokens, graph.constant(np.array(0, np.int64))], axis=1))
            case Pooling.CLS:
                found.append(at(graph.constant(1.0)))
    return found[0] if len(found) == 1 else graph.node("Concat", found, axis=1)


def _add(graph: _Graph, layer: Layer, value: str) -> str:
    match layer:
        case Dense():
            return _dense(graph, layer, value)
        case LayerNorm():
            centered = graph.node("Sub", [value, graph.reduced("ReduceMean", value, -1, keepdims=True)])
            squares = graph.node("Mul", [centered, centered])
            variance = graph.reduced("ReduceMean", squares, -1, keepdims=True)
            deviation = graph.node("Sqrt", [graph.node("Add", [variance, graph.constant(_EPSILON)])])
            scaled = graph.node("Mul", [graph.node("Div", [centered, deviation]), graph.constant(layer.weight)])
            return graph.node("Add", [scaled, graph.constant(layer.bias)])
        case _:
            squares = graph.reduced("ReduceSum", graph.node("Mul", [value, value]), -1, keepdims=True)
            norm = graph.node("Max", [graph.node("Sqrt", [squares]), graph.constant(_TINY)])
            return graph.node("Div", [value, norm])


def _dense(graph: _Graph, layer: Dense, value: str) -> str:
    result = graph.node("MatMul", [value, graph.constant(np.ascontiguousarray(layer.weight.T))])
    if layer.bias is not None:
        result = graph.node("Add", [result, graph.constant(layer.bias)])
    result = _activated(graph, layer.activation, result)
    if not layer.is_residual:
        return result
    if layer.residual is None and layer.weight.shape[0] != layer.weight.shape[1]:
        raise InvalidInput("a dense layer with a residual has no weights for it", hint="download the whole folder")
    if layer.residual is not None:
        value = graph.node("MatMul", [value, graph.constant(np.ascontiguousarray(layer.residual.T))])
    return graph.node("Add", [result, value])


def _activated(graph: _Graph, activation: str, value: str) -> str:
    match activation:
        case "Identity":
            return value
        case "ReLU":
            return graph.node("Relu", [value])
        case "LeakyReLU":
            return graph.node("LeakyRelu", [value], alpha=_SMALL_SLOPE)
        case "ELU":
            return graph.node("Elu", [value], alpha=1.0)
        case "ReLU6":
            return graph.node("Clip", [value, graph.constant(0.0), graph.constant(6.0)])
        case "SiLU":
            return graph.node("Mul", [value, graph.node("Sigmoid", [value])])
        case "GELU":
            shares = graph.node("Erf", [graph.node("Div", [value, graph.constant(math.sqrt(2))])])
            product = graph.node("Mul", [value, graph.node("Add", [shares, graph.constant(1.0)])])
            return graph.node("Mul", [product, graph.constant(0.5)])
    return graph.node(activation, [value])  # Tanh, Sigmoid and Softplus have the same names in ONNX
