"""Conversions between real values and stored integers, and between two storage types."""

from __future__ import annotations

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type
from service.compiler.qnn.type_parser import parse
from service.compiler.qnn.types import QuantizedType


def quantize(x: relax.Expr, out_type: QuantizedType) -> relax.Call:
    """Converts real values of the expressed type to the storage of `out_type`, same shape. (MLIR: `quant.qcast`.)"""
    return call_of("quantize", [x], out_type=out_type)


def dequantize(x: relax.Expr, in_type: QuantizedType) -> relax.Call:
    """Converts the storage of `in_type` to its expressed type, same shape: scale * (x - zero_point). (MLIR:
    `quant.dcast`.)
    """
    return call_of("dequantize", [x], in_type=in_type)


def storage_cast(x: relax.Expr, type_: QuantizedType) -> relax.Call:
    """Marks the integers in `x` as values of `type_`, or unmarks them; computes nothing. (MLIR: `quant.scast`.)"""
    return call_of("storage_cast", [x], type=type_)


def requantize(
    x: relax.Expr, in_type: QuantizedType, out_type: QuantizedType, bias: relax.Expr | None = None
) -> relax.Call:
    """Converts accumulators or storage of `in_type` to storage of `out_type`, same shape, clamped to its storage
    bounds.

    Args:
        in_type: may be per-axis.
        out_type: per-tensor, or per-axis. If both types are per-axis, their axis is the same.
        bias: `[C]` float32, real values that are added along the last axis. If `out_type` is per-axis, its axis is the
            last one too. (A quantized bias is part of the accumulators instead: `conv2d`, `dense`.)
    """
    return call_of("requantize", [x] if bias is None else [x, bias], in_type=in_type, out_type=out_type)


def requantize_add(
    x: relax.Expr,
    residual: relax.Expr,
    in_type: QuantizedType,
    residual_type: QuantizedType,
    out_type: QuantizedType,
) -> relax.Call:
    """Adds accumulators of `in_type` and a residual of the same shape, in real values; stores the sum as `out_type`.

    Nothing is rounded in between, unlike in `requantize` followed by `add`. `in_type` may be per-axis.
    """
    types = {"in_type": in_type, "residual_type": residual_type, "out_type": out_type}
    return call_of("requantize_add", [x, residual], **types)


def _quantize(o: Operation) -> relax.TensorType:
    o.count(1)
    shape, dtype = o.tensor(0)
    out_type = o.quantized("out_type")
    o.require(dtype == out_type.expressed, f"the operand is {dtype}, but out_type expresses {out_type.expressed}")
    _computable(o, out_type)
    o.fits(shape, parse(str(o.attr("out_type"))))
    return tensor_type(shape, out_type.dtype)


def _dequantize(o: Operation) -> relax.TensorType:
    o.count(1)
    in_type = o.quantized("in_type")
    _computable(o, in_type)
    return tensor_type(o.stored(0, in_type), in_type.expressed)


def _computable(o: Operation, quantized: QuantizedType) -> None:
    o.require(quantized.expressed != "float64", "real values must be float32, float16 or bfloat16, not float64")


def _storage_cast(o: Operation) -> relax.TensorType:
    o.count(1)
    quantized = o.quantized("type")
    return tensor_type(o.stored(0, quantized), quantized.dtype)


def _requantize(o: Operation) -> relax.TensorType:
    shape = o.stored(0, o.quantized("in_type"))
    if o.count(1, 2) == 2:
        bias, dtype = o.tensor(1, rank=1)
        o.require(bool(shape) and bias == shape[-1:], f"a bias of shape {list(bias)} does not fit {list(shape)}")
        o.require(dtype == "float32", f"the bias must be float32, not {dtype}")
    in_type, out_type = o.quantized("in_type"), o.quantized("out_type")
    for name, quantized in (("in_type", in_type), ("out_type", out_type)):
        o.require(quantized.blocks is None, f"{name} must be per-tensor or per-axis, not in blocks")
    o.fits(shape, out_type)
    axes = {each.axis for each in (in_type, out_type) if each.axis is not None}
    o.require(len(axes) < 2, f"in_type is per-axis along axis {in_type.axis}, but out_type along axis {out_type.axis}")
    in_channels = axes <= {len(shape) - 1}
    o.require(in_channels or len(o.call.args) == 1, "a bias is along the last axis, but the scales are not")
    is_builtin = o.name != "qnn.requantize" or o.builtin is not None
    o.require(
        not is_builtin or (in_channels and out_type.is_per_tensor), "LiteRT's kernels have scales of accumulators only"
    )
    return tensor_type(shape, out_type.dtype)


def _requantize_add(o: Operation) -> relax.TensorType:
    o.count(2)
    in_type = o.quantized("in_type")
    shape = o.stored(0, in_type)
    o.require(in_type.is_per_tensor or in_type.axis == len(shape) - 1, "in_type must have the scales of the last axis")
    residual = o.stored(1, o.per_tensor("residual_type"))
    o.require(residual == shape, f"cannot add {list(residual)} to {list(shape)}")
    return tensor_type(shape, o.per_tensor("out_type").dtype)


RULES: dict[str, Rule] = {
    "quantize": _quantize,
    "dequantize": _dequantize,
    "requantize": _requantize,
    "requantize_add": _requantize_add,
    "storage_cast": _storage_cast,
    "vector_requantize": _requantize,
}
