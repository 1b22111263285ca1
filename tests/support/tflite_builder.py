"""Writes small quantized TFLite models. Tests then need neither files from elsewhere nor a converter.

`ModelBuilder` writes any graph; `tflite_models` contains models of one operator. Everything is written with LiteRT's
copy of the schema (`ai_edge_litert.schema_py_generated`), and the importer reads with another package, so that the two
check each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from service.core.models.arrays import Array

Pair = tuple[int, int]

_TENSOR_TYPES = {
    np.dtype(np.float32): schema.TensorType.FLOAT32,
    np.dtype(np.float16): schema.TensorType.FLOAT16,
    np.dtype(np.int32): schema.TensorType.INT32,
    np.dtype(np.uint8): schema.TensorType.UINT8,
    np.dtype(np.int64): schema.TensorType.INT64,
    np.dtype(np.bool_): schema.TensorType.BOOL,
    np.dtype(np.int16): schema.TensorType.INT16,
    np.dtype(np.int8): schema.TensorType.INT8,
    np.dtype(np.complex64): schema.TensorType.COMPLEX64,
}
# The operator version since which int8 is allowed (lite/tools/versioning/op_version.cc). It is 1 for operators that are
# not listed.
_INT8_VERSIONS = {
    "ABS": 2,
    "ADD": 2,
    "ARG_MAX": 2,
    "ARG_MIN": 2,
    "AVERAGE_POOL_2D": 2,
    "BATCH_MATMUL": 2,
    "BROADCAST_TO": 2,
    "CONCATENATION": 2,
    "CONV_2D": 3,
    "DEPTHWISE_CONV_2D": 3,
    "DEQUANTIZE": 2,
    "EQUAL": 2,
    "EXP": 2,
    "FULLY_CONNECTED": 4,
    "GREATER": 2,
    "GREATER_EQUAL": 2,
    "L2_NORMALIZATION": 2,
    "LEAKY_RELU": 2,
    "LESS": 2,
    "LESS_EQUAL": 2,
    "LOG": 2,
    "LOGISTIC": 2,
    "MAXIMUM": 2,
    "MAX_POOL_2D": 2,
    "MEAN": 2,
    "MINIMUM": 2,
    "MUL": 2,
    "NOT_EQUAL": 2,
    "PAD": 2,
    "REDUCE_MAX": 2,
    "REDUCE_MIN": 2,
    "RELU": 2,
    "RELU6": 2,
    "RESIZE_BILINEAR": 3,
    "RESIZE_NEAREST_NEIGHBOR": 2,
    "RSQRT": 2,
    "SELECT": 2,
    "SOFTMAX": 2,
    "SQRT": 2,
    "SQUARED_DIFFERENCE": 2,
    "SUB": 2,
    "SUM": 2,
    "TANH": 2,
}
# The first versions of operators whose first version is not 1.
_VERSIONS = {"BROADCAST_TO": 2}


@dataclass(frozen=True)
class Quant:
    """The quantization of a tensor: one scale, or one for each index of `axis`. A single zero point applies to all
    scales.
    """

    scales: float | Sequence[float]
    zero_points: int | Sequence[int] = 0
    axis: int = 0

    @property
    def scale_array(self) -> npt.NDArray[np.float32]:
        return np.atleast_1d(np.asarray(self.scales, np.float32))

    @property
    def zero_point_array(self) -> npt.NDArray[np.int64]:
        points = np.atleast_1d(np.asarray(self.zero_points, np.int64))
        return np.broadcast_to(points, self.scale_array.shape)


class ModelBuilder:
    """Builds a model of one subgraph, tensor by tensor and operator by operator.

    `model` is LiteRT's mutable object. Tests of invalid files change it before they call `build`.
    """

    def __init__(self) -> None:
        self.graph = schema.SubGraphT(tensors=[], operators=[], name="main")
        # Buffer 0 is always empty. Tensors that are not constant use it.
        self.model = schema.ModelT(
            version=3,
            operatorCodes=[],
            subgraphs=[self.graph],
            buffers=[schema.BufferT()],
            description="written by a test",
        )

    def tensor(self, name: str, shape: Sequence[int], dtype: npt.DTypeLike, quant: Quant | None = None) -> int:
        """Adds a tensor that an operator or the caller writes, and returns its index."""
        return self._add(name, shape, np.dtype(dtype), quant, buffer=0)

    def variable(self, name: str, shape: Sequence[int], dtype: npt.DTypeLike, quant: Quant | None = None) -> int:
        """Adds a tensor that an operator changes in place, and whose elements persist between calls."""
        index = self.tensor(name, shape, dtype, quant)
        self.graph.tensors[index].isVariable = True
        return index

    def resource(self, name: str) -> int:
        """Adds the handle of a resource variable."""
        index = self.tensor(name, (), np.int32)
        self.graph.tensors[index].type = schema.TensorType.RESOURCE
        return index

    @contextmanager
    def subgraph(self) -> Iterator[schema.SubGraphT]:
        """Adds a subgraph, to which the block adds tensors and operators. The block sets its inputs and outputs."""
        main, self.graph = self.graph, schema.SubGraphT(tensors=[], operators=[], name="called")
        self.model.subgraphs.append(self.graph)
        yield self.graph
        self.graph.inputs, self.graph.outputs = (
            np.asarray(ends, np.int32) for ends in (self.graph.inputs, self.graph.outputs)
        )
        self.graph = main

    def call_once(self, variables: dict[str, tuple[Array, Quant | None]]) -> None:
        """Adds a subgraph that assigns constants to resource variables, and the operator that calls it."""
        main, self.graph = (
            self.graph,
            schema.SubGraphT(
                tensors=[], operators=[], inputs=np.zeros(0, np.int32), outputs=np.zeros(0, np.int32), name="initialize"
            ),
        )
        self.model.subgraphs.append(self.graph)
        for name, (value, quant) in variables.items():
            handle, constant = self.resource(f"{name}_handle"), self.constant(f"{name}_initial", value, quant)
            self.operator("VAR_HANDLE", [], [handle], schema.VarHandleOptionsT(sharedName=name))
            self.operator("ASSIGN_VARIABLE", [handle, constant], [], schema.AssignVariableOptionsT())
        self.graph = main
        self.operator("CALL_ONCE", [], [], schema.CallOnceOptionsT(initSubgraphIndex=len(self.model.subgraphs) - 1))

    def constant(self, name: str, data: Array, quant: Quant | None = None, bits: int = 8) -> int:
        """Adds a constant. With 4 or 2 `bits`, int8 `data` is stored as int4 or int2."""
        stored = data if bits == 8 else packed(data, bits)
        self.model.buffers.append(schema.BufferT(data=np.frombuffer(stored.tobytes(), np.uint8)))
        index = self._add(name, data.shape, data.dtype, quant, buffer=len(self.model.buffers) - 1)
        if bits != 8:
            self.graph.tensors[index].type = {4: schema.TensorType.INT4, 2: schema.TensorType.INT2}[bits]
        return index

    def _add(self, name: str, shape: Sequence[int], dtype: np.dtype[Any], quant: Quant | None, buffer: int) -> int:
        quantization = None
        if quant is not None:
            quantization = schema.QuantizationParametersT(
                scale=quant.scale_array, zeroPoint=quant.zero_point_array, quantizedDimension=quant.axis
            )
        self.graph.tensors.append(
            schema.TensorT(
                shape=np.asarray(shape, np.int32),
                type=_TENSOR_TYPES[dtype],
                buffer=buffer,
                name=name,
                quantization=quantization,
                hasRank=True,
            )
        )
        return len(self.graph.tensors) - 1

    def operator(
        self,
        name: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: Any = None,
        version: int | None = None,
    ) -> None:
        """Adds an operator by its builtin name, such as `CONV_2D`. `options` is the schema's `…OptionsT` object.

        -1 in `inputs` represents an optional input that is omitted.
        """
        types = {self.graph.tensors[index].type for index in inputs if index >= 0}
        if version is None:
            version = _INT8_VERSIONS.get(name, 1) if schema.TensorType.INT8 in types else _VERSIONS.get(name, 1)
        code = getattr(schema.BuiltinOperator, name)
        self.model.operatorCodes.append(
            schema.OperatorCodeT(deprecatedBuiltinCode=min(code, 127), builtinCode=code, version=version)
        )
        operator = schema.OperatorT(
            opcodeIndex=len(self.model.operatorCodes) - 1,
            inputs=np.asarray(inputs, np.int32),
            outputs=np.asarray(outputs, np.int32),
        )
        if options is not None:
            union = type(options).__name__.removesuffix("T")
            if hasattr(schema.BuiltinOptions, union):
                operator.builtinOptions, operator.builtinOptionsType = options, getattr(schema.BuiltinOptions, union)
            else:
                operator.builtinOptions2, operator.builtinOptions2Type = options, getattr(schema.BuiltinOptions2, union)
        self.graph.operators.append(operator)

    def signature(self, inputs: dict[str, int], outputs: dict[str, int], key: str = "serving_default") -> None:
        """Adds a signature with names of the inputs and outputs, in the form that a converter writes."""

        def maps(names: dict[str, int]) -> list[Any]:
            return [schema.TensorMapT(name=name, tensorIndex=index) for name, index in names.items()]

        self.model.signatureDefs = [
            *(self.model.signatureDefs or []),
            schema.SignatureDefT(inputs=maps(inputs), outputs=maps(outputs), signatureKey=key, subgraphIndex=0),
        ]

    def build(self, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        self.graph.inputs = np.asarray(inputs, np.int32)
        self.graph.outputs = np.asarray(outputs, np.int32)
        return serialize(self.model)


def packed(data: Array, bits: int) -> Array:
    """Returns int8 values as bytes with 8 / bits values each, the first value in the lowest bits."""
    per_byte = 8 // bits
    flat = data.reshape(-1).view(np.uint8) & ((1 << bits) - 1)
    rows = np.pad(flat, (0, -flat.size % per_byte)).reshape(-1, per_byte)
    return np.asarray(np.bitwise_or.reduce(rows << np.arange(0, 8, bits, dtype=np.uint8), axis=1), np.uint8)


def serialize(model: Any) -> bytes:
    """Returns the file of a `schema.ModelT`."""
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())
