"""Reads the tensors of a safetensors file: the length of a JSON header (uint64), the header, and the elements
(huggingface.co/docs/safetensors).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from service.compiler.importers.published.files import parse_json
from service.core.errors import InvalidInput
from service.core.models.arrays import Array
from service.core.printable import printable

_HEADER_BYTES = 1 << 20
_MOST_TENSORS = 1 << 10
_LENGTH_BYTES = 8
_DTYPES: Mapping[str, str] = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "BF16": "<u2"}


def read_tensors(data: bytes, name: str) -> dict[str, Array]:
    """Returns the tensors by name, as float32. Numbers of other types than float16, bfloat16, float32 and float64 are
    refused.

    Args:
        name: the file, for messages.

    Raises:
        InvalidInput: the file is not well formed.
    """
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    if len(data) < _LENGTH_BYTES or length > min(_HEADER_BYTES, len(data) - _LENGTH_BYTES):
        raise InvalidInput(f"the header of {printable(name)} is not well formed")
    header = parse_json(data[_LENGTH_BYTES : _LENGTH_BYTES + length], name)
    if not isinstance(header, dict) or len(header) > _MOST_TENSORS:
        raise InvalidInput(f"the header of {printable(name)} is not an object of at most {_MOST_TENSORS} tensors")
    elements = memoryview(data)[_LENGTH_BYTES + length :]
    return {key: _tensor(entry, elements, f"{name}: {key}") for key, entry in header.items() if key != "__metadata__"}


def _tensor(entry: Any, elements: memoryview, name: str) -> Array:
    if not isinstance(entry, dict) or (dtype := _DTYPES.get(str(entry.get("dtype")))) is None:
        raise InvalidInput(f"the tensor {printable(name)} is not float16, bfloat16, float32 or float64")
    shape, span = _sizes(entry.get("shape")), _sizes(entry.get("data_offsets"))
    if shape is None or span is None or len(span) != 2:
        raise InvalidInput(f"the tensor {printable(name)} has no valid shape or position")
    size_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    if not span[0] <= span[1] <= len(elements) or span[1] - span[0] != size_bytes:
        raise InvalidInput(f"the tensor {printable(name)} needs {size_bytes} bytes, but its position has others")
    values = np.frombuffer(elements[span[0] : span[1]], dtype)
    if dtype == "<u2":  # the upper half of a float32
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32).reshape(shape)


def _sizes(value: Any) -> list[int] | None:
    return value if isinstance(value, list) and all(type(each) is int and each >= 0 for each in value) else None
