"""Between real values, storage and other storage."""

from __future__ import annotations

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type
from service.compiler.qnn.types import QuantizedType


def quantize(x: relax.Expr, out_type: QuantizedType) -> relax.Call:
    """float32 -> the storage of `out_type`, same shape."""
    return call_of("quantize", [x], out_type=out_type)


def dequantize(x: relax.Expr, in_type: QuantizedType) -> relax.Call:
    """The storage of `in_type` -> float32, same shape: scale * (x - zero_point)."""
    return call_of("dequantize", [x], in_type=in_type)


def requantize(x: relax.Expr, in_type: QuantizedType, out_type: QuantizedType) -> relax.Call:
    """Accumulators or storage of `in_type` -> storage of `out_type`, same shape, clamped to its storage bounds.

    `in_type` may be per-axis; `out_type` is per-tensor.
    """
    return call_of("requantize", [x], in_type=in_type, out_type=out_type)


def _quantize(o: Operation) -> relax.TensorType:
    o.count(1)
    shape, dtype = o.tensor(0)
    o.require(dtype == "float32", f"quantizes float32, not {dtype}")
    out_type = o.quantized("out_type")
    o.fits_axis(shape, out_type)
    return tensor_type(shape, out_type.storage)


def _dequantize(o: Operation) -> relax.TensorType:
    o.count(1)
    return tensor_type(o.stored(0, o.quantized("in_type")), "float32")


def _requantize(o: Operation) -> relax.TensorType:
    o.count(1)
    return tensor_type(o.stored(0, o.quantized("in_type")), o.per_tensor("out_type").storage)


RULES: dict[str, Rule] = {
    "quantize": _quantize,
    "dequantize": _dequantize,
    "requantize": _requantize,
}
