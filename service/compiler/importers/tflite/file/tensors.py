"""Reads a tensor: its type, shape, quantization and, if it is a constant, its elements."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import tflite

from service.compiler.importers.names import shortened
from service.compiler.importers.tflite.accessors import int32_at, int32_of, ints, text
from service.compiler.importers.tflite.file import schema
from service.compiler.importers.tflite.file.sparse import SPARSEST, read_sparse
from service.compiler.importers.tflite.model import Blocks, Quantization, Tensor
from service.core.errors import MalformedModel
from service.core.models.arrays import Array

# Limits of a tensor. LiteRT's kernels index with 32-bit integers and support at most eight dimensions.
MAX_BYTES = (1 << 31) - 1
_MAX_RANK = 8
_NO_BUFFER = 0
_OPEN = -1  # a size that the caller chooses

_NUMPY_TYPES: dict[int, np.dtype[Any]] = {
    tflite.TensorType.FLOAT32: np.dtype("<f4"),
    tflite.TensorType.INT32: np.dtype("<i4"),
    tflite.TensorType.UINT8: np.dtype("u1"),
    tflite.TensorType.INT64: np.dtype("<i8"),
    tflite.TensorType.FLOAT16: np.dtype("<f2"),
    tflite.TensorType.BOOL: np.dtype("?"),
    tflite.TensorType.INT16: np.dtype("<i2"),
    tflite.TensorType.INT8: np.dtype("i1"),
    tflite.TensorType.COMPLEX64: np.dtype("<c8"),
}
# Element types that the `tflite` package does not know yet.
_NEWER_TYPES = {19: "int2", 20: "uint4", 21: "float8_e4m3fn", 22: "float8_e5m2"}
# Types whose elements are packed into bytes, the first element in the lowest bits -> bits of an element. Constants of
# these types are read as int8.
_PACKED_TYPES = {tflite.TensorType.INT4: 4, 19: 2}
_TYPE_NAMES = _NEWER_TYPES | {
    value: name.lower() for name, value in vars(tflite.TensorType).items() if isinstance(value, int)
}


def read_tensor(model: Any, data: bytes, subgraph: Any, index: int) -> Tensor:
    """Returns tensor `index` of a subgraph; `data` is the whole file.

    If a tensor is well-formed but not supported, the reason is recorded as its `oddity`, so that unsupported operators
    are reported first.

    Raises:
        MalformedModel: the tensor's bytes, shape and quantization do not fit together.
    """
    return _Reader(model, data, subgraph.Tensors(index), index).tensor()


def bytes_of_buffer(model: Any, data: bytes, index: int, owner: str, tensor: str | None = None) -> memoryview | None:
    """Returns the bytes of buffer `index`, or None if it is empty. Buffer 0 means "no buffer", whatever it contains
    (`ParseTensors` in tflite/core/interpreter_builder.cc). The bytes are in the FlatBuffer; in files larger than 2 GB,
    they come after the FlatBuffer (`Buffer.offset`). Errors name the buffer's `owner`. If the owner is a tensor,
    `tensor` is its name.

    Raises:
        MalformedModel: the buffer does not exist, or is not inside the file.
    """
    if index >= model.BuffersLength():
        raise MalformedModel(
            f"{owner} is in buffer {index}; the file has {model.BuffersLength()} buffers", tensor=tensor
        )
    buffer = model.Buffers(index)
    if index == _NO_BUFFER:
        return None
    if buffer.DataLength():
        return memoryview(buffer.DataAsNumpy()).cast("B")
    if buffer.Offset() > 1:  # 0 and 1 mean "no data" (schema.fbs)
        end = buffer.Offset() + buffer.Size()
        if end > len(data):
            message = f"{owner} has its data at bytes {buffer.Offset()} to {end}, but the file has {len(data)} bytes"
            raise MalformedModel(message, tensor=tensor)
        return memoryview(data)[buffer.Offset() : end]
    return None


class _Reader:
    def __init__(self, model: Any, data: bytes, table: Any, index: int) -> None:
        self._model, self._data, self._table, self._index = model, data, table, index
        self._name = text(table.Name())
        self._label = shortened(self._name) or f"tensor #{index}"

    def tensor(self) -> Tensor:
        raw, declared = self._raw(), ints(self._table, "Shape")
        signature = ints(self._table, "ShapeSignature")
        shape = tuple(1 if size == _OPEN else size for size in declared)
        bits = _PACKED_TYPES.get(self._table.Type(), 0) if raw is not None else 0
        dtype = np.dtype("i1") if bits else _NUMPY_TYPES.get(self._table.Type())
        oddity = self._oddity(shape, dtype)
        tensor = Tensor(
            index=self._index,
            name=self._name,
            dtype=dtype.name if dtype else _TYPE_NAMES.get(self._table.Type(), f"type {self._table.Type()}"),
            shape=shape,
            signature=signature or (declared if _OPEN in declared else ()),
            storage=None if raw is None else self._table.Buffer(),
            is_variable=bool(self._table.IsVariable()),
            is_open=_OPEN in declared,
            oddity=oddity,
            packed_bits=bits,
        )
        if dtype is not None and oddity is None and self._table.Sparsity() is not None:
            return self._sparse(tensor, raw, dtype)
        blocks = self._blocks()
        if raw is not None and bits and blocks is not None and math.prod(shape) <= MAX_BYTES:
            return replace(tensor, blocks=blocks, data=self._unpacked(raw, shape, bits))
        if oddity or dtype is None:
            return tensor
        tensor = replace(tensor, quantization=self._quantization(shape))
        if raw is None:
            return tensor
        return replace(tensor, data=self._unpacked(raw, shape, bits) if bits else self._elements(raw, shape, dtype))

    def _oddity(self, shape: tuple[int, ...], dtype: np.dtype[Any] | None) -> str | None:
        """Returns the reason why no operator can use the tensor, or None if operators can use it.

        A size of -1 becomes 1 here; `shapes` decides whether an input may have it. The sizes of all other tensors are
        computed.
        """
        quantization = self._table.Quantization()
        if dtype is None:
            return "has an element type that cannot be compiled"
        if int32_at(self._table, schema.TABLES["Tensor"]["external_buffer"][0]):
            return "has its data in another file"
        if quantization is not None and quantization.DetailsType():
            return "is quantized in blocks or along several axes"
        if len(shape) > _MAX_RANK:
            return f"has {len(shape)} dimensions; the limit is {_MAX_RANK}"
        if any(size < 0 for size in shape):
            return f"has the shape {list(shape)}"
        if math.prod(shape) * dtype.itemsize > MAX_BYTES:
            return f"has shape {list(shape)}, which is more than 2 GiB"
        return None

    def _blocks(self) -> Blocks | None:
        """Returns a quantization in blocks, without zero points."""
        quantization = self._table.Quantization()
        if quantization is None or quantization.DetailsType() not in schema.DETAILS:
            return None
        details, slots = quantization.Details(), schema.TABLES["BlockwiseQuantization"]
        if details is None or int32_of(details, slots["zero_points"][0]) > 0:
            return None
        return Blocks(int32_of(details, slots["scales"][0]), int32_of(details, slots["block_size"][0]))

    def _sparse(self, tensor: Tensor, raw: memoryview | None, dtype: np.dtype[Any]) -> Tensor:
        """Returns the tensor with its elements in a separate field, because they do not fill its shape."""
        if raw is None or len(raw) % dtype.itemsize:
            return replace(tensor, oddity="is sparse")
        elements, whole = np.frombuffer(raw, dtype), math.prod(tensor.shape)
        if len(elements) < SPARSEST * whole:
            return replace(tensor, oddity=f"is sparse, with only {len(elements)} of {whole} elements in the file")
        return replace(tensor, oddity="is sparse", sparse=read_sparse(self._table.Sparsity(), elements))

    def _raw(self) -> memoryview | None:
        """Returns the bytes of a constant."""
        return bytes_of_buffer(self._model, self._data, self._table.Buffer(), f"the tensor {self._label}", self._label)

    def _elements(self, raw: memoryview, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        expected = math.prod(shape) * dtype.itemsize
        if len(raw) != expected:
            self._malformed(f"has {len(raw)} bytes, but {dtype.name} {list(shape)} needs {expected}")
        return np.frombuffer(raw, dtype).reshape(shape)

    def _unpacked(self, raw: memoryview, shape: tuple[int, ...], bits: int) -> Array:
        """Returns packed elements, sign-extended to int8 (UnpackPackedIntToInt8 in
        tflite/kernels/internal/portable_tensor_utils.cc).
        """
        count, per_byte = math.prod(shape), 8 // bits
        if len(raw) != -(-count // per_byte):
            self._malformed(f"has {len(raw)} bytes, but int{bits} {list(shape)} needs {-(-count // per_byte)}")
        shifts = np.arange(8 - bits, -1, -bits, dtype=np.uint8)
        lifted = (np.frombuffer(raw, np.uint8)[:, None] << shifts).view(np.int8)  # an element in the highest bits
        return np.ascontiguousarray((lifted >> (8 - bits)).reshape(-1)[:count]).reshape(shape)

    def _quantization(self, shape: tuple[int, ...]) -> Quantization | None:
        """Returns the quantization, by the rules of `ParseQuantization` in tflite/core/interpreter_builder.cc. Scales
        that are not positive and zero points that do not fit the storage type are not refused here, because LiteRT
        loads both. The operators refuse them.
        """
        table = self._table.Quantization()
        if table is None or not table.ScaleLength():
            return None
        scales, zero_points, axis = table.ScaleAsNumpy(), table.ZeroPointLength(), table.QuantizedDimension()
        if zero_points != len(scales):
            self._malformed(f"has {len(scales)} scales, but {zero_points} zero points")
        if axis < 0 or axis >= max(len(shape), 1):
            self._malformed(f"is quantized along dimension {axis}, but has {len(shape)} dimensions")
        if len(scales) != 1 and (not shape or len(scales) != shape[axis]):
            self._malformed(f"has {len(scales)} scales for the shape {list(shape)} along dimension {axis}")
        return Quantization(tuple(scales.tolist()), tuple(table.ZeroPointAsNumpy().tolist()), axis)

    def _malformed(self, what: str) -> NoReturn:
        raise MalformedModel(f"the tensor {self._label} {what}", tensor=self._label)
