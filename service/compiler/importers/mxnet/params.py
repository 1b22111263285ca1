"""Reads `.params`: a list of named arrays (`NDArray::Save` and `Load` in MXNet's src/ndarray/ndarray.cc).

The format is little-endian: magic, a reserved word, the arrays, their names. An array consists of the magic of its
version, storage type, shape, device, element type and elements.
"""

from __future__ import annotations

import math
import struct
from typing import NoReturn

import numpy as np

from service.core.errors import MalformedModel, OctetError, Unsupported
from service.core.models.arrays import Array

_LIST_MAGIC = 0x112
_ARRAY_MAGICS = (0xF993FAC8, 0xF993FAC9, 0xF993FACA)  # of versions 1 to 3
_DENSE = 0  # NDArrayStorageType
_MOST_RANK = 8
_LEAST_ARRAY_BYTES = 12
_NAME_LENGTH = 1 << 10
_KINDS = ("arg:", "aux:")
# By mshadow's type flags.
_TYPES = [np.dtype(name) for name in ("<f4", "<f8", "<f2", "u1", "<i4", "i1", "<i8", "?")]


def read_params(data: bytes) -> dict[str, Array]:
    """Returns the arrays of a file by name, as read-only views of `data`. Arguments and auxiliary states have distinct
    names.

    Raises:
        MalformedModel: the file does not follow the format.
        Unsupported: an array is sparse, or its type does not exist in NumPy.
    """
    return _Reader(data).arrays()


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = memoryview(data), 0

    def arrays(self) -> dict[str, Array]:
        if len(self._data) < 24 or self._word("<Q") != _LIST_MAGIC:
            _malformed("are not a list of MXNet arrays")
        self._word("<Q")
        arrays = [self._numbered(index) for index in range(self._count(_LEAST_ARRAY_BYTES))]
        names = [self._name() for _ in range(self._count(8))]
        if len(names) != len(arrays):
            _malformed(f"contain {len(arrays)} arrays but {len(names)} names")
        if self._at != len(self._data):
            _malformed(f"have {len(self._data) - self._at} bytes after their end")
        if len(set(names)) != len(names):
            _malformed("contain a name twice")
        return dict(zip(names, arrays, strict=True))

    def _numbered(self, index: int) -> Array:
        """Reads the next array. Errors contain the index of the array, because its name comes later in the file."""
        try:
            return self._array()
        except OctetError as exc:
            exc.tensor = f"params[{index}]"
            raise

    def _array(self) -> Array:
        magic = self._word("<I")
        if magic not in _ARRAY_MAGICS:
            _malformed(f"contain an array of the unknown version {magic:#x}")
        if magic != _ARRAY_MAGICS[0] and (storage := self._word("<i")) != _DENSE:
            raise Unsupported(f"the parameters contain an array of storage type {storage}; only dense ones can be read")
        rank = self._word("<i")
        if not 0 <= rank <= _MOST_RANK:
            _malformed(f"contain an array of {rank} dimensions")
        shape = tuple(self._word("<q") for _ in range(rank))
        if rank == 0 or any(size <= 0 for size in shape):
            _malformed(f"contain an array of the invalid shape {list(shape)}")
        self._take(8)  # device type and number
        flag = self._word("<i")
        if not 0 <= flag < len(_TYPES):
            raise Unsupported(f"the parameters contain an array of the element type {flag}, which cannot be read")
        return np.frombuffer(self._take(math.prod(shape) * _TYPES[flag].itemsize), _TYPES[flag]).reshape(shape)

    def _name(self) -> str:
        length = self._word("<Q")
        if length > _NAME_LENGTH:
            _malformed(f"contain a name of {length} bytes, which is too long")
        try:
            name = bytes(self._take(length)).decode()
        except UnicodeDecodeError as exc:
            raise MalformedModel("the parameters contain a name that is not UTF-8") from exc
        return name[4:] if name.startswith(_KINDS) else name

    def _count(self, least_bytes: int) -> int:
        """Reads a count of items, each of which has at least `least_bytes`. The rest of the file must be large enough
        for them.
        """
        count = self._word("<Q")
        if count * least_bytes > len(self._data) - self._at:
            _malformed(f"declare {count} items, for which the file is too short")
        return count

    def _word(self, form: str) -> int:
        (value,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return int(value)

    def _take(self, size: int) -> memoryview:
        if size > len(self._data) - self._at:
            _malformed("end in the middle of an array or name")
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken


def _malformed(what: str) -> NoReturn:
    raise MalformedModel(f"the parameters {what}")
