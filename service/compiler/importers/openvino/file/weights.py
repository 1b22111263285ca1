"""Reads constants from the weights of an IR. Every offset and size is checked before it is used."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from service.compiler.importers.openvino.model import Layer
from service.core.errors import MalformedModel, Unsupported
from service.core.models.arrays import Array

# Element types of whole bytes, by their names in an IR.
DTYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8",
    "u64": "uint64", "u32": "uint32", "u16": "uint16", "u8": "uint8", "boolean": "bool",
}  # fmt: skip
_HALF_BYTES: dict[str, Callable[[Array], Array]] = {
    "u4": lambda values: values,
    "i4": lambda values: np.where(values > 7, values.astype(np.int8) - 16, values).astype(np.int8),
}
_LARGEST_RANK = 16


def read_constant(layer: Layer, weights: memoryview) -> Array:
    """Returns the elements of a `Const` layer. Values of whole bytes are a view of the file; 4-bit values become bytes,
    and bfloat16 becomes float32.

    Raises:
        MalformedModel: the offset, the size or the shape does not fit the file.
        Unsupported: the element type is not supported.
    """
    attributes = layer.attributes
    kind, shape = attributes.text("element_type"), attributes.integers("shape", ())
    offset, size_bytes = attributes.integer("offset"), attributes.integer("size")
    if len(shape) > _LARGEST_RANK or any(size < 0 for size in shape):
        _malformed(layer, f"has the shape {list(shape)[:8]}")
    if not 0 <= offset <= len(weights) or not 0 <= size_bytes <= len(weights) - offset:
        _malformed(
            layer,
            f"needs {size_bytes} bytes from byte {offset} on, but the file of the weights has {len(weights)}",
            "the .bin file is not the one that belongs to the .xml file, or its download is incomplete",
        )
    count, part = math.prod(shape), weights[offset : offset + size_bytes]
    if kind in DTYPES:
        dtype = np.dtype(DTYPES[kind])
        _check_size(layer, size_bytes, count * dtype.itemsize, shape, kind)
        values = np.frombuffer(part, dtype)
        if kind == "boolean":
            values = np.frombuffer(part, np.uint8) != 0
        return values.reshape(shape)
    if kind == "bf16":
        _check_size(layer, size_bytes, 2 * count, shape, kind)
        return (np.frombuffer(part, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
    if kind in _HALF_BYTES:
        _check_size(layer, size_bytes, (count + 1) // 2, shape, kind)
        pairs = np.frombuffer(part, np.uint8)
        values = np.stack([pairs & 15, pairs >> 4], axis=1).reshape(-1)[:count]
        return _HALF_BYTES[kind](values).reshape(shape)
    raise Unsupported(
        f"{layer.label} stores {kind[:20]!a}, which cannot be compiled",
        op=layer.label,
        hint="compress the weights to INT8 or INT4 (nncf.compress_weights), or leave them float",
    )


def _check_size(layer: Layer, given: int, needed: int, shape: tuple[int, ...], kind: str) -> None:
    if given != needed:
        _malformed(layer, f"stores {kind} {list(shape)[:8]} in {given} bytes, not in {needed}")


def _malformed(layer: Layer, what: str, hint: str | None = None) -> None:
    raise MalformedModel(f"{layer.label} {what}", op=layer.label, hint=hint)
