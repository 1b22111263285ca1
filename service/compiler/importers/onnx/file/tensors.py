"""Reads a constant: its type, shape and elements."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from service.compiler.importers.names import shortened
from service.compiler.importers.onnx.file.message import Values
from service.compiler.importers.onnx.file.package import Files, external_of
from service.compiler.importers.onnx.file.schema import DTYPES
from service.compiler.importers.onnx.model import Tensor
from service.compiler.qnn.numerics.sums.bfloat16 import BFLOAT16
from service.core.errors import MalformedModel
from service.core.models.arrays import Array

_MAX_BYTES = (1 << 31) - 1
_MAX_RANK = 8
# limits of a sparse constant after it was converted to a dense one: a multiple of the file's size, plus a minimum
_SPARSE_GROWTH, _SPARSE_FLOOR_BYTES = 16, 1 << 20

# Types that store two values in a byte, the first in the low half -> the dtype that stores one value per element.
NIBBLES = {"int4": "int8", "uint4": "uint8"}
# Real types of 8 and 4 bits. Their constants are read as float32.
SMALL_REALS = {
    "float8e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8e5m2": ml_dtypes.float8_e5m2,
    "float8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "float8e8m0": ml_dtypes.float8_e8m0fnu,
    "float4e2m1": ml_dtypes.float4_e2m1fn,  # two values in a byte
}
_PACKED_REAL = "float4e2m1"
# The supported dtypes, and the field that contains their elements if they are not raw bytes.
_FIELDS = {
    **dict.fromkeys((*NIBBLES, *SMALL_REALS), "int32_data"),
    "float32": "float_data",
    "float64": "double_data",
    "int64": "int64_data",
    "uint32": "uint64_data",
    "uint64": "uint64_data",
    **dict.fromkeys(("uint8", "int8", "uint16", "int16", "int32", "bool", "float16", BFLOAT16), "int32_data"),
}
_WORDS = {
    BFLOAT16: "uint16",
    **dict.fromkeys(SMALL_REALS, "uint8"),
}  # type without a NumPy equivalent -> the type of its bits


def text(raw: memoryview | None) -> str:
    """Returns a name from the file. Bytes that are not UTF-8 are escaped rather than refused, because names are only
    shown to people.
    """
    return bytes(raw or b"").decode("utf-8", errors="backslashreplace")


def read_tensor(values: Values, files: Files, name: str | None = None) -> Tensor:
    """Reads a `Tensor` message. `files` may contain its external data.

    If a tensor is well-formed but not supported, the reason is recorded as its `oddity`, so that unsupported operators
    are reported first.

    Raises:
        MalformedModel: the elements of the tensor do not fit its shape.
    """
    name = text(values.get("name")) if name is None else name
    dtype = DTYPES.get(values.get("data_type", 0), f"type {values.get('data_type', 0)}")
    shape = tuple(int(size) for size in values.get("dims", ()))
    if any(size < 0 for size in shape):
        raise MalformedModel(
            f"the constant {shortened(name)} has the invalid shape {list(shape)}", tensor=shortened(name)
        )
    external = external_of(values)
    oddity = _oddity(values, dtype, shape) or _missing(external, files)
    if oddity:
        return Tensor(name, dtype, shape, oddity=oddity)
    if external is not None:
        values = {"raw_data": files.part(shortened(name), external, _size_bytes(dtype, shape))}
    return Tensor(name, dtype, shape, _elements(values, name, dtype, shape))


def read_sparse(values: Values, files: Files, size_bytes: int) -> Tensor:
    """Returns the dense tensor that a `SparseTensor` message describes (onnx/docs/IR.md, "Sparse tensors").

    Args:
        size_bytes: the size of the file. The size of a dense tensor may be at most a multiple of this size.

    Raises:
        MalformedModel: the parts of the message do not fit together.
    """
    given = read_tensor(values.get("values", {}), files)
    positions = read_tensor(values.get("indices", {}), files, given.name)
    shape = tuple(int(size) for size in values.get("dims", ()))
    oddity = given.oddity or positions.oddity or _oddity({}, given.dtype, shape)
    if oddity is None and _size_bytes(given.dtype, shape) > _SPARSE_GROWTH * size_bytes + _SPARSE_FLOOR_BYTES:
        oddity = f"is sparse and has the shape {list(shape)}, which is far larger than the file"
    if oddity or given.data is None or positions.data is None:
        return Tensor(given.name, given.dtype, shape, oddity=oddity)
    indices = positions.data
    if indices.ndim == 2 and indices.shape[1] == len(shape):
        inside = bool(((indices >= 0) & (indices < np.array(shape))).all())
        flat = np.ravel_multi_index(tuple(indices.T), shape) if inside and indices.size else indices[:, :0].sum(axis=1)
    else:
        flat, inside = indices, bool(((indices >= 0) & (indices < math.prod(shape))).all())
    if flat.ndim != 1 or flat.shape != given.data.shape or not inside:
        _malformed(
            given.name, f"is sparse and has {given.data.size} values whose indices do not fit the shape {list(shape)}"
        )
    dense = np.zeros(math.prod(shape), given.data.dtype)
    dense[flat] = given.data
    return Tensor(given.name, given.dtype, shape, dense.reshape(shape))


def _oddity(values: Values, dtype: str, shape: tuple[int, ...]) -> str | None:
    if "segment" in values:
        return "is divided into segments"
    if dtype not in _FIELDS:
        return f"has elements of {dtype}, which no operator here supports"
    if len(shape) > _MAX_RANK:
        return f"has {len(shape)} dimensions; the limit is {_MAX_RANK}"
    if math.prod(shape) * _kind(dtype).itemsize > _MAX_BYTES:
        return f"has shape {list(shape)}, which is more than 2 GiB"
    return None


def _missing(external: Mapping[str, str] | None, files: Files) -> str | None:
    if external is None or external.get("location", "") in files:
        return None
    location = shortened(external.get("location", ""))
    return f"is kept in the file {location!a}, which is not in the upload: use octet push, or zip the files together"


def _size_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    count = math.prod(shape)
    return -(-count // 2) if dtype in (*NIBBLES, _PACKED_REAL) else count * _kind(dtype).itemsize


def _kind(dtype: str) -> np.dtype[Any]:
    return np.dtype({**NIBBLES, **_WORDS}.get(dtype, dtype))


def _elements(values: Values, name: str, dtype: str, shape: tuple[int, ...]) -> Array:
    if dtype in NIBBLES:
        return _nibbles(values, name, dtype, shape)
    if dtype in SMALL_REALS:
        is_packed = dtype == _PACKED_REAL
        bits = _nibbles(values, name, dtype, shape) if is_packed else _elements(values, name, "uint8", shape)
        return np.asarray(np.ascontiguousarray(bits).view(SMALL_REALS[dtype]).astype(np.float32))
    if dtype == BFLOAT16:
        words = _elements(values, name, _WORDS[dtype], shape)
        return (words.astype(np.uint32) << np.uint32(16)).view(np.float32)
    count, kind = math.prod(shape), np.dtype(dtype)
    if "raw_data" in values:
        raw = values["raw_data"]
        if len(raw) != count * kind.itemsize:
            _malformed(name, f"has {len(raw)} bytes, but {dtype} {list(shape)} needs {count * kind.itemsize}")
        elements = np.frombuffer(raw, kind.newbyteorder("<") if dtype != "bool" else np.uint8)
        return np.asarray(elements != 0 if dtype == "bool" else elements).reshape(shape)
    elements = values.get(_FIELDS[dtype], np.zeros(0, kind))
    if len(elements) != count:
        _malformed(name, f"has {len(elements)} elements, but its shape is {list(shape)}")
    if dtype == "float16":
        return np.asarray(elements.astype(np.uint16).view(np.float16)).reshape(shape)
    return np.asarray(elements.astype(kind)).reshape(shape)


def _nibbles(values: Values, name: str, dtype: str, shape: tuple[int, ...]) -> Array:
    count = math.prod(shape)
    if "raw_data" in values:
        packed = np.frombuffer(values["raw_data"], np.uint8)
    else:
        packed = values.get("int32_data", np.zeros(0, np.int64)).astype(np.uint8)
    if len(packed) != -(-count // 2):
        _malformed(name, f"has {len(packed)} bytes, but {dtype} {list(shape)} needs {-(-count // 2)}")
    return unpacked(packed, dtype)[:count].reshape(shape)


def unpacked(packed: Array, dtype: str) -> Array:
    """Returns the 4-bit values of type `dtype` that are packed in the bytes along the last axis."""
    halves = np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)
    return (halves ^ 8).astype(np.int8) - np.int8(8) if dtype == "int4" else halves


def _malformed(name: str, what: str) -> None:
    raise MalformedModel(f"the constant {shortened(name)} {what}", tensor=shortened(name))
