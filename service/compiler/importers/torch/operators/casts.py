"""Conversions between real and quantized values, and between types."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.torch.node import STORAGES, Node
from service.compiler.importers.torch.operators.constants import NUMPY_TYPES
from service.compiler.importers.torch.tensors import Tensor
from service.compiler.importers.torch.values import Value
from service.compiler.qnn import ops
from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType
from service.core.models.arrays import Array


def _quantize_per_tensor(node: Node, input: Any, scale: Any, zero_point: Any, dtype: Any) -> Value:
    x = node.tensor(input)
    node.require(x.quantized is None and x.dtype == "float32", f"quantizes {x.dtype}, not float32")
    storage = STORAGES.get(node.integer(dtype))
    if storage is None:
        node.unsupported("quantizes to a type other than quint8 or qint8")
    quantized = node.per_tensor(storage, scale, zero_point)
    return Value(node.emit(ops.quantize(x.expr, quantized)), quantized, node.real(scale))


def _dequantize(node: Node, input: Any) -> Any:
    x = node.tensor(input)
    return x if x.quantized is None else node.value(ops.dequantize(x.expr, x.quantized), None)


def _quantize(node: Node, input: Any, *, out_type: QuantizedType) -> Value:
    """Converts a quantization operator of an exported program."""
    x = node.tensor(input)
    node.require(x.quantized is None and x.dtype == "float32", f"quantizes {x.dtype}, not float32")
    if out_type.storage not in STORAGES.values() or not out_type.is_per_tensor:
        node.unsupported(f"quantizes activations to {out_type.storage}, or per channel")
    return node.value(ops.quantize(x.expr, out_type), out_type)


def _dequantize_as(node: Node, input: Any, *, out_type: QuantizedType, clamp: Any) -> Any:
    if isinstance(input, Tensor):  # the input is weights that no quantized operator reads
        stored = relax.const(np.ascontiguousarray(input.data), input.data.dtype.name)
        return node.value(ops.dequantize(stored, _narrowed(out_type, input.data)), None)
    x = node.tensor(input)
    node.require(x.dtype == out_type.dtype, f"dequantizes {x.dtype} as {out_type.dtype}")
    return node.value(ops.dequantize(x.expr, out_type), None)


def _narrowed(quantized: QuantizedType, stored: Array) -> QuantizedType:
    """Returns the type of constants with the fewest bits that hold them: PyTorch stores weights of 4 and of 2 bits as
    int8 or uint8 with bounds.
    """
    bounds = quantized.min, quantized.max
    if stored.size and not bounds[0] <= int(stored.min()) <= int(stored.max()) <= bounds[1]:
        return quantized
    sign = "u" if quantized.storage.startswith("u") else ""
    fitting = (name for name in (f"{sign}int2", f"{sign}int4") if STORAGE_RANGES.get(name) == bounds)
    return replace(quantized, storage=next(fitting, quantized.storage))


def _to(node: Node, self: Any, *options: Any, **named: Any) -> Value:
    """Converts `Tensor.to`. The arguments of `Tensor.to` are a dtype, a device and an optional dtype, or another
    tensor.
    """
    x = node.tensor(self)
    wanted: str | None
    options = (*options, *(named[name] for name in ("device", "dtype") if named.get(name) is not None))
    match options:
        case (Value() | Tensor() as other, *_):
            wanted = node.tensor(other).dtype
        case (int() as code, *_) | (str() | None, int() as code, *_) if not isinstance(code, bool):
            wanted = STORAGES.get(code) if x.quantized is not None else NUMPY_TYPES.get(code)
        case (str() as name, *_) if name in NUMPY_TYPES.values():
            wanted = name
        case () | (str() | None, None, *_) | (None, *_):
            return x
        case _:
            node.unsupported("has an argument that is neither a dtype nor a device")
    if wanted == x.dtype:
        return x
    narrows = wanted in ("int8", "uint8") and x.dtype in ("bool", "int8", "uint8", "int32", "int64")
    if x.quantized is not None or not (narrows or wanted in ("bool", "int32", "int64", "float32")):
        node.unsupported(f"converts {x.dtype} to a type other than bool, int32, int64 and float32")
    if wanted == "bool":
        return node.value(relax.op.not_equal(x.expr, relax.const(np.array(0, x.dtype), x.dtype)), None)
    return node.value(relax.op.astype(x.expr, wanted), None)


def _to_copy(node: Node, input: Any, *, dtype: Any = None, **_: Any) -> Value:
    return _to(node, input, dtype)


def _type_as(node: Node, input: Any, other: Any) -> Value:
    return _to(node, input, node.tensor(other))


def _dtype_of(node: Node, a: Any) -> int:
    """Returns the number that PyTorch gives to the type of a real tensor."""
    dtype = node.tensor(a).dtype
    number = next((number for number, name in NUMPY_TYPES.items() if name == dtype), None)
    if number is None or node.tensor(a).quantized is not None:
        node.unsupported(f"on {dtype}")
    return number


def _device_of(_: Node, a: Any) -> None:
    """Octet computes on one device, so no operator reads its name."""


RULES = {
    "prim::device": _device_of,
    "prim::dtype": _dtype_of,
    "aten::to": _to,
    "aten::_to_copy": _to_copy,
    "aten::type_as": _type_as,
    "octet::dequantize": _dequantize_as,
    "octet::quantize": _quantize,
    "aten::quantize_per_tensor": _quantize_per_tensor,
    "aten::dequantize": _dequantize,
}
