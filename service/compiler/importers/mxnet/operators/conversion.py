"""quantize_v2, requantize, dequantize (src/operator/quantization/mkldnn/)."""

from __future__ import annotations

import numpy as np

from service.compiler.importers.mxnet.node import Node, Tensor, Value, edges
from service.compiler.importers.mxnet.scales import (
    INT32_RANGE,
    LARGEST,
    QUANTIZED_RANGES,
    max_abs,
    source_type,
    steps_per_unit,
    type_of,
)
from service.compiler.qnn import ops
from service.compiler.qnn.types import QuantizedType

_CALIBRATE = "quantize the model with calib_mode='naive' or 'entropy'"


def quantize_v2(node: Node) -> list[Value]:
    """Converts float32 to int8 or uint8 (`MKLDNNQuantizeComputeKer` in mkldnn_quantize_v2-inl.h)."""
    node.count(1)
    x, (low, high) = node.tensor(0, "float32"), _calibrated(node)
    out_type = type_of(dtype := _out_dtype(node, low), steps_per_unit(dtype, low, high))
    return [node.result(node.emit(ops.quantize(x.expr, out_type))), *edges(low, high)]


def requantize(node: Node) -> list[Value]:
    """Converts int32 to int8 or uint8 (`MKLDNNRequantizeForwardKer` in mkldnn_requantize-inl.h)."""
    node.count(3)
    x, (low, high) = node.tensor(0, "int32"), _calibrated(node)
    dtype, real_range = _out_dtype(node, low), max_abs(low, high)
    steps = np.float32(LARGEST[dtype] / real_range)
    out_type = type_of(dtype, steps)
    range_edges = edges(np.float32(0) if dtype == "uint8" else -real_range, real_range)
    return [_requantized(node, x, out_type, steps), *range_edges]


def _requantized(node: Node, x: Tensor, out_type: QuantizedType, steps: np.float32) -> Tensor:
    if x.pending is not None:
        total = x.pending
        return node.result(node.emit(ops.add(total.lhs, total.rhs, total.lhs_type, total.rhs_type, out_type)))
    unit = max_abs(*node.range(1)) / INT32_RANGE
    in_type = source_type("int32", np.array([np.float32(unit) * steps]), out_type)
    return node.result(node.emit(ops.requantize(x.expr, in_type, out_type)))


def dequantize(node: Node) -> list[Value]:
    """Converts int8 or uint8 to float32 (`MKLDNNDequantizeComputeKer` in mkldnn_dequantize-inl.h)."""
    node.count(3)
    x, (low, high) = node.tensor(0, "int8", "uint8"), node.range(1)
    unit = np.float32(max_abs(low, high) / QUANTIZED_RANGES[x.dtype])
    return [node.result(node.emit(ops.dequantize(x.expr, QuantizedType(x.dtype, (float(unit),)))))]


def _calibrated(node: Node) -> tuple[np.float32, np.float32]:
    found = node.calibrated()
    if found is None:
        node.unsupported("has no calibrated range, and ranges cannot be computed at run time", hint=_CALIBRATE)
    return found


def _out_dtype(node: Node, low: np.float32) -> str:
    """Returns the output type, determined as by `GetQuantizeOutputType` in quantize_v2-inl.h and requantize-inl.h."""
    named = node.attributes.text("out_type", "int8")
    node.require(named in ("auto", "int8", "uint8"), f"has the unknown output type {named!a:.40}")
    return ("uint8" if low >= 0 else "int8") if named == "auto" else named
