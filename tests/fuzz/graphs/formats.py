"""Writes graphs to files, and runs such files in the runtime of their format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ai_edge_litert import schema_py_generated as schema

from service.core.models.arrays import Array
from tests.fuzz.graphs.graph import OMITTED, Graph, Quantization
from tests.support.onnx_builder import DTYPES, OnnxBuilder, message, number
from tests.support.tflite_builder import ModelBuilder, Quant

OPSET = 21


def to_bytes(graph: Graph, *, typed: bool = True) -> bytes:
    """Returns a graph as a file. Unless `typed` is true, an ONNX file declares the names of its outputs but not their
    types.
    """
    return _onnx(graph, typed) if graph.format == "onnx" else _tflite(graph)


def _onnx(graph: Graph, typed: bool) -> bytes:
    builder = OnnxBuilder()
    for name, tensor in graph.tensors.items():
        if tensor.data is not None:
            head = b"".join(number(1, size) for size in tensor.shape) + number(2, DTYPES[tensor.dtype])
            builder.constants.append(head + message(8, name) + message(9, tensor.data.tobytes()))
    for name in graph.inputs:
        builder.input(name, graph.tensors[name].dtype, graph.tensors[name].shape)
    for operator in graph.operators:
        builder.node(operator.type, operator.inputs, operator.outputs, operator.domain, **operator.options)
    for name in graph.outputs:
        if typed:
            builder.output(name, graph.tensors[name].dtype, graph.tensors[name].shape)
        else:
            builder.outputs.append(message(1, name))
    return builder.build(OPSET)


def _tflite(graph: Graph) -> bytes:
    builder, indices = ModelBuilder(), {OMITTED: -1}
    for name, tensor in graph.tensors.items():
        quant = _quant(tensor.quantization)
        if tensor.data is None:
            indices[name] = builder.tensor(name, tensor.shape, tensor.dtype, quant)
        else:
            indices[name] = builder.constant(name, tensor.data, quant)
    for operator in graph.operators:
        options = None
        if "table" in operator.options:
            fields = {name: value for name, value in operator.options.items() if name != "table"}
            options = getattr(schema, operator.options["table"])(**fields)
        operands, results = ([indices[name] for name in names] for names in (operator.inputs, operator.outputs))
        builder.operator(operator.type, operands, results, options)
    return builder.build([indices[name] for name in graph.inputs], [indices[name] for name in graph.outputs])


def _quant(quantization: Quantization | None) -> Quant | None:
    if quantization is None:
        return None
    return Quant(list(quantization.scales), list(quantization.zero_points), quantization.axis)


class Runtime:
    """A file that is loaded in the reference runtime of its numerics mode. It runs on one thread.

    Raises:
        Exception: the runtime does not load the file. The type is the runtime's own.
    """

    def __init__(self, file_format: str, data: bytes, numerics: str, *, optimized: bool = True) -> None:
        self._run = _onnx_runtime(data, optimized) if file_format == "onnx" else _litert(data, numerics)

    def __call__(self, inputs: Sequence[Array]) -> list[Array]:
        outputs: list[Array] = self._run(inputs)
        return outputs


def _onnx_runtime(data: bytes, optimized: bool) -> Any:
    from tests.support.onnx_reference import Reference

    return Reference(data, optimized=optimized)


def _litert(data: bytes, numerics: str) -> Any:
    from tests.support.litert import interpreter, run

    loaded = interpreter(data, reference=numerics == "litert-reference")

    def answer(inputs: Sequence[Array]) -> list[Array]:
        return [output.copy() for output in run(loaded, inputs)]

    return answer
