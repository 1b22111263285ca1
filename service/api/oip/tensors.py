"""Tensors off the wire, each into 64-byte aligned memory of the size that the model's signature gives: never a claim's.

Every function raises `InvalidTensor`, which names the input, for what does not fit.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from math import prod
from reprlib import repr as brief
from typing import Any

import numpy as np
import numpy.typing as npt

from service.api.oip.body import Body
from service.core.buffers import aligned_empty
from service.core.errors import InvalidTensor
from service.core.signature import TensorSpec

Array = npt.NDArray[Any]

_JSON_TYPES: dict[str, set[type]] = {"BOOL": {bool}, "FP32": {int, float}}  # of the others: {int}
_JSON_NAMES = {"BOOL": "true and false", "FP32": "numbers"}
_BYTES_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class Raw:
    """The next `size_bytes` bytes of `body`, which must be there: `inputs.Elements` in binary form."""

    body: Body
    size_bytes: int

    def tensor(self, spec: TensorSpec) -> Array:
        if self.size_bytes != size_bytes(spec):
            raise _refused(
                spec,
                f"declares {self.size_bytes} bytes of binary data, but its shape and datatype make {size_bytes(spec)}",
            )
        return from_binary(self.body, spec)

    def one_bytes(self, spec: TensorSpec) -> bytes:
        return from_bytes_element(self.body, spec, self.size_bytes)


@dataclass(frozen=True)
class Numbers:
    """A JSON array, flat or nested as the shape is: `inputs.Elements` in readable form."""

    data: Any

    def tensor(self, spec: TensorSpec) -> Array:
        return from_json(self.data, spec)

    def one_bytes(self, spec: TensorSpec) -> bytes:
        raise InvalidTensor(
            f"input {spec.name!r} is a picture in JSON, which cannot hold its bytes",
            tensor=spec.name,
            hint="send it as binary data, with the parameter binary_data_size",
        )


def size_bytes(spec: TensorSpec) -> int:
    return prod(spec.shape) * spec.dtype.itemsize


def from_binary(body: Body, spec: TensorSpec) -> Array:
    """The next `size_bytes(spec)` bytes of `body`, which must be there: little-endian, C order."""
    octets = body.tensor(size_bytes(spec))
    tensor = octets.view(spec.dtype).reshape(spec.shape)
    if spec.datatype == "FP32" and not np.isfinite(tensor).all():
        raise _refused(spec, "holds NaN or infinity")
    if spec.datatype == "BOOL" and octets.max(initial=0) > 1:
        raise _refused(spec, "holds bytes other than 0 and 1")
    return tensor


def from_bytes_element(body: Body, spec: TensorSpec, length: int) -> bytes:
    """The one element of a BYTES tensor of `length` bytes: its length as a little-endian uint32, then itself."""
    element = body.take(length)
    if length < _BYTES_LENGTH.size or _BYTES_LENGTH.unpack_from(element)[0] != length - _BYTES_LENGTH.size:
        raise _refused(spec, f"is BYTES of {length} bytes, which are not one element: a uint32 length, then the data")
    return bytes(element[_BYTES_LENGTH.size :])


def from_json(data: Any, spec: TensorSpec) -> Array:
    """A JSON array, flat or nested as the shape is."""
    numbers = _flat(data, spec)
    allowed = _JSON_TYPES.get(spec.datatype, {int})
    if not set(map(type, numbers)) <= allowed:
        odd = next(number for number in numbers if type(number) not in allowed)
        kind = _JSON_NAMES.get(spec.datatype, "whole numbers")
        raise _refused(spec, f"holds {brief(odd)}, but takes {kind}")
    tensor = aligned_empty(spec.shape, spec.dtype)
    flat = tensor.reshape(-1)
    if spec.datatype == "BOOL":
        flat[:] = numbers
    elif spec.datatype == "FP32":
        _fill_floats(flat, numbers, spec)
    else:
        _fill_integers(flat, numbers, spec)
    return tensor


def _flat(data: Any, spec: TensorSpec) -> list[Any]:
    """The elements of `data` in C order."""
    if not isinstance(data, list):
        raise _refused(spec, f"has data that is not an array, but {brief(data)}")
    count = prod(spec.shape)
    if not any(type(item) is list for item in data):
        if len(data) != count:
            raise _refused(spec, f"has {len(data)} elements, but its shape {list(spec.shape)} has {count}")
        return data
    level: list[Any] = [data]
    for axis, size in enumerate(spec.shape):
        if not all(type(item) is list and len(item) == size for item in level):
            raise _refused(spec, f"is nested otherwise than its shape {list(spec.shape)}, in dimension {axis}")
        level = list(chain.from_iterable(level))
    return level


def _fill_integers(flat: Array, numbers: Iterable[int], spec: TensorSpec) -> None:
    limits = np.iinfo(spec.dtype)
    try:
        wide = np.array(numbers, np.int64)
    except OverflowError:
        wide = np.array([], np.int64)
    if wide.size != flat.size or wide.min(initial=0) < limits.min or wide.max(initial=0) > limits.max:
        odd = next(number for number in numbers if not limits.min <= number <= limits.max)
        raise _refused(spec, f"holds {brief(odd)}, but {spec.datatype} goes from {limits.min} to {limits.max}")
    flat[:] = wide


def _fill_floats(flat: Array, numbers: Iterable[float], spec: TensorSpec) -> None:
    try:
        with np.errstate(over="ignore"):
            flat[:] = np.array(numbers, np.float64)
    except OverflowError:  # an integer that no float64 holds
        flat[:] = np.inf
    if not np.isfinite(flat).all():
        raise _refused(spec, "holds a number outside the range of FP32")


def _refused(spec: TensorSpec, what: str) -> InvalidTensor:
    return InvalidTensor(f"input {spec.name!r} {what}", tensor=spec.name)
