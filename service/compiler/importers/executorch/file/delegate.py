"""Reads the bytes that the XNNPACK delegate receives: a header, a FlatBuffer and constants
(backends/xnnpack/runtime/XNNHeader.h and XNNCompiler.cpp of ExecuTorch 1.5.1).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np

from service.compiler.importers.executorch.file import delegate_schema as schema
from service.compiler.importers.executorch.file.reader import named_data
from service.compiler.importers.executorch.graph import Graph, Operator, Scales, Tensor
from service.compiler.importers.flatbuffer.tables import Row, read_root
from service.core.errors import MalformedModel, Unsupported
from service.core.models.arrays import Array

_HEADER = struct.Struct("<4x4sHIIIQ")  # magic, length, FlatBuffer's offset and size, constants' offset and size
_MAGIC = b"XH00"
_IDENTIFIER = slice(4, 8)
_MOST_RANK, _MOST_ELEMENTS = 6, (1 << 31) - 1  # XNN_MAX_TENSOR_DIMS
_EXTERNAL_FLAGS = 3  # XNN_VALUE_FLAG_EXTERNAL_INPUT and XNN_VALUE_FLAG_EXTERNAL_OUTPUT
_IN_OTHER_DATA = (1 << 64) - 1  # the offset of a constant that has a name
_DTYPES = {
    schema.FP32: "float32",
    schema.FP16: "float16",
    schema.QINT8: "int8",
    schema.QUINT8: "uint8",
    schema.QINT32: "int32",
    schema.QCINT8: "int8",
    schema.QCINT32: "int32",
    schema.INT32: "int32",
}
_PACKED = (schema.QCINT4, schema.QBINT4)  # two weights in each byte


def read_graph(data: memoryview, named: Mapping[str, memoryview]) -> Graph:
    """Returns the delegate's graph. Constants are views of `data` and `named`.

    Args:
        named: the data that the program names.

    Raises:
        MalformedModel: the data is not well formed.
        Unsupported: a constant is in another file.
    """
    constants = memoryview(b"")
    if bytes(data[_IDENTIFIER]) == _MAGIC:
        if len(data) < _HEADER.size:
            raise MalformedModel("the data of the XNNPACK delegate ends inside of its header")
        _, _, offset, size_bytes, constants_offset, constants_bytes = _HEADER.unpack_from(data)
        if offset + size_bytes > len(data) or constants_offset + constants_bytes > len(data):
            raise MalformedModel("the header of the XNNPACK delegate refers to data outside of it")
        constants = data[constants_offset : constants_offset + constants_bytes]
        data = data[offset : offset + size_bytes]
    identifier = bytes(data[_IDENTIFIER])
    if identifier not in schema.GRAPHS:
        raise MalformedModel(f"the graph of the XNNPACK delegate has the identifier {identifier!r}")
    return _Reader(read_root(data, schema.GRAPHS[identifier]), constants, named).graph()


class _Reader:
    def __init__(self, root: Row, constants: memoryview, named: Mapping[str, memoryview]) -> None:
        self._root, self._constants, self._named = root, constants, named
        self._inside = root.tables("constant_buffer")
        self._offsets = root.tables("constant_data")

    def graph(self) -> Graph:
        tensors: dict[int, Tensor] = {}
        for row in self._root.tables("xvalues"):
            tensor = self._tensor(row.table("xvalue_union"))
            if tensor.number in tensors:
                raise MalformedModel(f"the delegate's graph defines the value {tensor.number} twice")
            tensors[tensor.number] = tensor
        operators = tuple(_operator(row, index) for index, row in enumerate(self._root.tables("xnodes")))
        ends = [tuple(self._root.numbers(name, "uint32").tolist()) for name in ("input_ids", "output_ids")]
        for number in (*ends[0], *ends[1]):
            if number not in tensors or tensors[number].external is None:
                raise MalformedModel(f"the delegate's graph has no external value {number}")
        return Graph(tensors, operators, *ends)

    def _tensor(self, row: Row | None) -> Tensor:
        scales = None if row is None or row.name == "XNNTensorValue" else row.table("quant_params")
        if row is not None and row.name == "XNNQuantizedTensorValue":
            row = row.table("tensor_value")
        if row is None:
            raise MalformedModel("the delegate's graph has a value without a type")
        number, datatype = row.unsigned("id_out"), row.signed("datatype")
        shape = tuple(int(size) for size in row.numbers("dims", "uint32"))
        if len(shape) > _MOST_RANK or math.prod(shape) > _MOST_ELEMENTS or row.unsigned("num_dims") != len(shape):
            raise MalformedModel(
                f"value {number} of the delegate's graph has the shape {list(shape)[: _MOST_RANK + 1]}"
            )
        data = self._data(row.unsigned("constant_buffer_idx"), number, datatype, shape)
        external = row.unsigned("external_id") if row.unsigned("flags") & _EXTERNAL_FLAGS else None
        return Tensor(number, datatype, shape, self._scales(scales, number, shape), external, data)

    def _scales(self, row: Row | None, number: int, shape: Sequence[int]) -> Scales | None:
        if row is None or row.name == "PerTokenDynamicQuant":
            return None
        if row.name == "PerTensorQuant":
            return Scales((row.real("scale"),), row.signed("zero_point"))
        axis = row.signed("channel_dim")
        if not 0 <= axis < len(shape):
            raise MalformedModel(f"value {number} of the delegate's graph has a scale for each index of axis {axis}")
        block = row.signed("group_size") if row.name == "PerChannelGroupQuant" else 0
        if row.name == "PerChannelGroupQuant" and block <= 0:
            raise MalformedModel(f"value {number} of the delegate's graph has blocks of {block} weights")
        return Scales(self._scale_values(row, block > 0, number), 0, axis, block)

    def _scale_values(self, row: Row, in_blocks: bool, number: int) -> tuple[float, ...]:
        index, count = row.unsigned("scale_buffer_idx"), row.unsigned("num_scales")
        if index:
            dtype = np.dtype(ml_dtypes.bfloat16 if in_blocks else np.float32)
            stored = np.frombuffer(self._bytes(index, count * dtype.itemsize, number), dtype)
        elif in_blocks and row.has("scale_bf16"):
            stored = row.numbers("scale_bf16", "uint16").view(ml_dtypes.bfloat16)
        else:
            stored = row.numbers("scale", "float32")
        return tuple(float(each) for each in stored)

    def _data(self, index: int, number: int, datatype: int, shape: tuple[int, ...]) -> Array | None:
        if not index:
            return None
        if datatype in _PACKED:
            packed_shape = (*shape[:-1], (shape[-1] + 1) // 2) if shape else ()
            return self._array(index, number, "uint8", packed_shape)
        if datatype not in _DTYPES:
            raise Unsupported(f"the delegate's graph has a constant of datatype {datatype}, which cannot be compiled")
        return self._array(index, number, _DTYPES[datatype], shape)

    def _array(self, index: int, number: int, dtype: str, shape: tuple[int, ...]) -> Array:
        size_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        return np.frombuffer(self._bytes(index, size_bytes, number), dtype).reshape(shape)

    def _bytes(self, index: int, size_bytes: int, number: int) -> memoryview:
        """Returns the first bytes of a constant of the graph."""
        if self._offsets:
            stored = self._stored(index, number)
        elif index < len(self._inside):
            stored = self._inside[index].data("storage")
        else:
            raise MalformedModel(f"value {number} of the delegate's graph refers to constant {index}")
        if len(stored) < size_bytes:
            raise MalformedModel(
                f"value {number} of the delegate's graph needs {size_bytes} bytes, but only {len(stored)} are stored"
            )
        return stored[:size_bytes]

    def _stored(self, index: int, number: int) -> memoryview:
        if index >= len(self._offsets):
            raise MalformedModel(f"value {number} of the delegate's graph refers to constant {index}")
        row = self._offsets[index]
        start, size_bytes = row.unsigned("offset"), row.unsigned("size")
        if start == _IN_OTHER_DATA:
            return named_data(self._named, row.text("named_key"))
        if start + size_bytes > len(self._constants):
            raise MalformedModel(f"constant {index} of the delegate's graph lies outside of its data")
        return self._constants[start : start + size_bytes]


def _operator(row: Row, index: int) -> Operator:
    fields = row.table("xnode_union")
    if fields is None:
        number = row.unsigned("xnode_union_type")
        raise Unsupported(
            f"node {index} of the XNNPACK delegate has the type {number}, which is newer than ExecuTorch 1.5",
            hint="export the model with ExecuTorch 1.5",
        )
    limits = row.table("output_min_max")
    bounds = None if limits is None else (limits.real("output_min"), limits.real("output_max"))
    return Operator(index, fields.name.removeprefix("XNN"), fields, bounds)
