"""Tensors in an archive, as the archive's pickles describe them: NumPy arrays that are views of the archive's bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from service.compiler.importers.archive import Archive
from service.compiler.importers.torch.unpickler import Unpickler
from service.core.errors import MalformedModel, Unsupported
from service.core.models.arrays import Array

_MOST_RANK = 8

# Storage classes -> element type; the storages of quantized tensors contain the stored integers.
_STORAGES: dict[str, str] = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "QInt8Storage": "int8",
    "QUInt8Storage": "uint8",
    "QInt32Storage": "int32",
}
# Two values of 4 bits in a byte, the first in the lower bits. The count of such a storage is that of its bytes.
_NIBBLES = "QUInt4x2Storage"


# Storage classes of PyTorch that are not read -> their element type.
_OTHER_STORAGES: dict[str, str] = {
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "QUInt2x4Storage": "2 bits",
}
_OTHER_HINT = "save the model with constants of float32 (model.float()), and with weights of 8 bits"


@dataclass(frozen=True)
class Quantization:
    """The quantization real = scale * (stored - zero_point). There is one scale and zero point, or one of each for
    every index of `axis`.
    """

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None


@dataclass(frozen=True, eq=False)
class Tensor:
    """A constant's elements; stored integers if the constant is quantized."""

    data: Array = field(repr=False)
    quantization: Quantization | None = None


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a quantized `Embedding`: real = scale * stored + offset, with a real offset for each row.

    Attributes:
        data: uint8 `[rows, columns]`.
        scales, offsets: float32 `[rows]`.
    """

    data: Array = field(repr=False)
    scales: Array = field(repr=False)
    offsets: Array = field(repr=False)


@dataclass(frozen=True)
class Spec:
    """The dtype and shape of an input."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Storage:
    data: bytes = field(repr=False)
    dtype: np.dtype[Any]
    has_nibbles: bool = False


class TensorReader:
    """Reads the pickles of an archive.

    The tensors of a pickle are in separate records: those of `data.pkl` are in `data/`.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        if "byteorder" in archive and archive.read("byteorder") != b"little":
            raise MalformedModel("the archive was written on a big-endian machine, which is not supported")
        self._storages: dict[str, _Storage] = {}

    def read(self, pickle: str) -> Any:
        """Returns the value in the record `pickle`, such as `data.pkl`."""
        folder = pickle.removesuffix(".pkl")
        machine = Unpickler(_MAKERS, _CONSTANTS, _is_own_class, lambda reference: self._storage(folder, reference))
        return machine.run(self._archive.read(pickle))

    def read_inert(
        self,
        pickle: str,
        makers: Mapping[str, Callable[..., Any]],
        constants: Mapping[str, Any],
        classes: Callable[[str], bool],
    ) -> Any:
        """Returns the value in a record that may also contain other names (`Unpickler`)."""
        folder = pickle.removesuffix(".pkl").removesuffix("data") + "data"
        machine = Unpickler(
            _MAKERS | dict(makers), _CONSTANTS | dict(constants), classes, lambda each: self._storage(folder, each)
        )
        return machine.run(self._archive.read(pickle))

    def read_specs(self, pickle: str) -> Any:
        """Returns the value in the record `pickle`, with a `Spec` in place of each tensor. The archive contains the
        shapes of traced inputs, but not their elements.
        """
        machine = Unpickler(_MAKERS | _SPEC_MAKERS, _CONSTANTS, _is_own_class, _element_type)
        return machine.run(self._archive.read(pickle))

    def _storage(self, folder: str, reference: Any) -> _Storage:
        """Returns the storage that `("storage", type, record, device, elements)` refers to, as serialization.py's
        `persistent_id` writes it.
        """
        match reference:
            case ("storage", str(kind), *_) if kind in _OTHER_STORAGES:
                raise Unsupported(f"constants of {_OTHER_STORAGES[kind]} cannot be compiled", hint=_OTHER_HINT)
            case ("storage", str(kind), str(key), str(), int(count)) if kind in _STORAGES or kind == _NIBBLES:
                name = f"{folder}/{key}"
            case _:
                raise _misfit("refers to something other than the elements of a tensor")
        dtype = np.dtype(_STORAGES.get(kind, "uint8"))
        if name not in self._storages:
            self._storages[name] = _Storage(self._archive.read(name), dtype, kind == _NIBBLES)
        storage = self._storages[name]
        if (
            storage.has_nibbles != (kind == _NIBBLES)
            or storage.dtype != dtype
            or len(storage.data) != count * dtype.itemsize
        ):
            raise _misfit(
                f"declares {count} elements of {dtype.name} in {name[:200]!a}, but the record has another size or type"
            )
        return storage


def strided(data: bytes, dtype: np.dtype[Any], offset: int, size: Any, stride: Any) -> Array:
    """Returns a read-only tensor of `size` and `stride` over `data`. Its first element is at `offset`.

    Raises:
        MalformedModel: the tensor exceeds `data`.
        Unsupported: the tensor has more elements than `data`.
    """
    if not (_are_sizes(size) and _are_sizes(stride) and len(size) == len(stride) and isinstance(offset, int)):
        raise MalformedModel("the archive has a tensor whose shape is not a list of sizes")
    flat = np.frombuffer(data, dtype)
    reach = offset + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))
    if offset < 0 or (math.prod(size) and reach >= len(flat)):
        raise MalformedModel("the archive has a tensor that extends beyond its elements")
    # With a stride of 0, a small file could describe a large tensor.
    if math.prod(size) > max(len(flat), 1):
        raise Unsupported(
            f"a constant of {list(size)[:8]} repeats the {len(flat)} elements that the file has of it",
            hint="store the small tensor, and expand it in the model's code",
        )
    array = np.lib.stride_tricks.as_strided(
        flat[offset:], size, [step * flat.itemsize for step in stride], writeable=False
    )
    return array if array.size else np.empty(size, dtype)


def _are_sizes(value: Any) -> bool:
    return (
        isinstance(value, tuple | list)
        and len(value) <= _MOST_RANK
        and all(type(item) is int and 0 <= item < 1 << 40 for item in value)
    )


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> Tensor:
    if not isinstance(storage, _Storage):
        raise _misfit("has a tensor without elements")
    if storage.has_nibbles:
        raise Unsupported("a constant of 4 bits that is not the table of an embedding cannot be compiled")
    return Tensor(strided(storage.data, storage.dtype, offset, size, stride))


def _quantized_tensor(storage: Any, offset: Any, size: Any, stride: Any, quantizer: Any, *_: Any) -> Tensor | Rows:
    """Returns the tensor of `torch._utils._rebuild_qtensor`."""
    match quantizer:
        case ("per_channel_affine_float_qparams", Tensor(data=scales), Tensor(data=zero_points), 0):
            return _rows(storage, offset, size, stride, scales, zero_points)
    plain = _tensor(storage, offset, size, stride)
    match quantizer:
        case ("per_tensor_affine", float(scale), int(zero_point)):
            quantization = Quantization((scale,), (zero_point,))
        case ("per_channel_affine", Tensor(data=scales), Tensor(data=zero_points), int(axis)):
            quantization = per_channel(plain.data.shape, scales, zero_points, axis)
        case _:
            raise Unsupported("a tensor of the archive is quantized in a way that Octet does not read")
    return Tensor(plain.data, quantization)


def _rows(storage: Any, offset: Any, size: Any, stride: Any, scales: Array, zero_points: Array) -> Rows:
    """Returns the table of an embedding. As PyTorch does (`qembeddingbag_prepack.cpp`), 4-bit tables round scales and
    offsets to float16.
    """
    if not isinstance(storage, _Storage) or not _are_sizes(size) or len(size) != 2:
        raise _misfit("has the table of an embedding that is not a matrix")
    count, columns = size
    if storage.has_nibbles:
        width = -(-columns // 2)
        packed = strided(storage.data, storage.dtype, offset, (count, width), (width, 1))
        data = np.stack([packed & 15, packed >> 4], axis=-1).reshape(count, 2 * width)[:, :columns]
    else:
        data = _tensor(storage, offset, size, stride).data
    if data.dtype != np.uint8 or scales.shape != (count,) or zero_points.shape != (count,):
        raise _misfit("has the table of an embedding whose scales do not fit its rows")
    scale = scales.astype(np.float32)
    with np.errstate(all="ignore"):
        moved = -(zero_points.astype(np.float32) * scale)
        if storage.has_nibbles:
            scale, moved = (each.astype(np.float16).astype(np.float32) for each in (scale, moved))
    if not (np.isfinite(scale).all() and np.isfinite(moved).all()):
        raise _misfit("has the table of an embedding whose scales are not finite")
    return Rows(np.ascontiguousarray(data), scale, moved)


def per_channel(shape: tuple[int, ...], scales: Array, zero_points: Array, axis: int) -> Quantization:
    """Returns the quantization of a tensor along `axis`.

    Raises:
        MalformedModel: the parameters do not fit the tensor.
    """
    if not 0 <= axis < len(shape) or scales.shape != (shape[axis],) or zero_points.shape != scales.shape:
        raise _misfit("has a tensor whose scales do not fit its shape")
    if scales.dtype.kind != "f" or zero_points.dtype.kind != "i":
        raise _misfit("has a tensor whose scales are not real numbers, or whose zero points are not integers")
    return Quantization(tuple(scales.tolist()), tuple(zero_points.tolist()), axis)


def _element_type(reference: Any) -> str:
    match reference:
        case ("storage", str(kind), *_) if kind in _STORAGES:
            return _STORAGES[kind]
        case _:
            raise _misfit("refers to something other than the elements of a tensor")


def _spec(dtype: Any, _offset: Any, size: Any, *_: Any) -> Spec:
    if not (isinstance(dtype, str) and _are_sizes(size)):
        raise _misfit("has a tensor whose shape is not a list of sizes")
    return Spec(dtype, tuple(size))


def _parameter(data: Any, *_: Any) -> Any:
    return data


def _untyped(value: Any, _type: Any = None) -> Any:
    """Returns the value of a `torch.jit._pickle` name, which is a list with its element type."""
    return value


_MAKERS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_qtensor": _quantized_tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "collections.OrderedDict": dict,
    "torch.jit._pickle.build_tensorlist": _untyped,
    "torch.jit._pickle.build_intlist": _untyped,
    "torch.jit._pickle.build_doublelist": _untyped,
    "torch.jit._pickle.build_boollist": _untyped,
    "torch.jit._pickle.restore_type_tag": _untyped,
}
_SPEC_MAKERS: dict[str, Callable[..., Any]] = {"torch._utils._rebuild_tensor_v2": _spec}
_CONSTANTS: dict[str, Any] = {
    **{f"torch.{storage}": storage for storage in (*_STORAGES, *_OTHER_STORAGES, _NIBBLES)},
    "torch.per_tensor_affine": "per_tensor_affine",
    "torch.per_channel_affine": "per_channel_affine",
    "torch.per_channel_affine_float_qparams": "per_channel_affine_float_qparams",
}


def _is_own_class(module: str) -> bool:
    return module == "__torch__" or module.startswith("__torch__.")


def _misfit(what: str) -> MalformedModel:
    return MalformedModel(f"a pickle of the archive {what}")
