"""Convolutions of stored values for which ONNX Runtime computes in float32 (`importers.onnx.qdq.stored`).

If the result has a scale for each channel, each filter's scale is divided by its channel's scale. Kernels then store
the result in steps of 1, and its readers use the scales of the channels.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import relax

from service.compiler.importers.channels_first import CHANNELS
from service.compiler.importers.onnx.node import Node
from service.compiler.importers.onnx.operators.convolution import bias_of, stored_filters
from service.compiler.importers.onnx.operators.real import float32
from service.compiler.importers.onnx.operators.windows import Windows
from service.compiler.importers.onnx.rewriting import CHANNELS as FILE_CHANNELS
from service.compiler.qnn import ops
from service.compiler.qnn.types import EXPRESSED_RANGES, QuantizedType, accumulator_type

_LEAST, _MOST = EXPRESSED_RANGES["float32"]


def stored_conv(node: Node) -> relax.Var:
    """Inputs: x, x_scale, x_zero_point, w, w_scale, w_zero_point, an optional bias, y_scale and y_zero_point, as for a
    QLinearConv. The last two are absent if the result is real. Computes integer sums and scales them.

    An int32 bias is added to the integer sums, and a float32 bias to the scaled sums. y_scale may have a value for each
    filter.
    """
    windows, weights = Windows(node, weights=3), node.shape(3)
    windows.check_groups(weights)
    in_type, weight_type = node.quantized(0, 1, 2), node.quantized(3, 4, 5, axis=0)
    weight = stored_filters(node, windows, 3)
    stored, bias = None, None
    if node.has(6) and node.dtype(6) == "int32":
        stored = bias_of(node, 6, weights[0])
    elif node.has(6):
        node.require(node.shape(6) == (weights[0],), f"has a bias {list(node.shape(6))} for {weights[0]} filters")
        float32(node, 6)
        bias = node.data(6)
        node.require(bool(np.isfinite(bias).all()), "has infinite or NaN values in its bias")
    named = _named_type(node, weights[0]) if node.has(7) else None
    out_type = named
    if named is not None and not named.is_per_tensor:
        found = _in_steps_of_one(node, weight_type, named)
        if found is not None:
            weight_type, out_type = found
            bias = None if bias is None else bias / np.array(named.scales, np.float32)

    def body(x: relax.Var) -> relax.Expr:
        sums = node.emit(ops.conv2d(x, weight, stored, in_type, weight_type, **windows.options()), "accumulate")
        sums_type = accumulator_type(in_type, weight_type, axis=CHANNELS)
        if out_type is not None and out_type.is_per_tensor:
            return ops.requantize(sums, sums_type, out_type, None if bias is None else node.literal(bias))
        real = ops.dequantize(sums, sums_type)
        if bias is not None:
            real = relax.op.add(node.emit(real, "scaled"), node.literal(bias))
        return real if out_type is None else _quantized(node, real, out_type)

    result = windows.apply(body)
    return result if named is None else node.typed(result, named)


def _named_type(node: Node, filters: int) -> QuantizedType:
    """Returns the type of the result, as the file defines it. A type with one scale is clamped by the operator's
    activation.
    """
    storage = str(node.data(8).dtype.name)
    if node.data(7).size == 1:
        return node.output_type(7, 8, storage)
    named = node.type_of(7, node.data(8), storage, FILE_CHANNELS)
    node.require(len(named.scales) == filters, f"has {len(named.scales)} scales for {filters} filters")
    return named


def _in_steps_of_one(
    node: Node, weight_type: QuantizedType, named: QuantizedType
) -> tuple[QuantizedType, QuantizedType] | None:
    """Returns the types of filters and result after each filter's scale was divided by the scale of its channel in the
    result, which then becomes 1. Returns None if the stored bounds of the channels differ, or if a scale exceeds
    float32.
    """
    lows, highs = node.stored_bounds(named)
    with np.errstate(over="ignore", under="ignore"):
        scales = np.array(weight_type.scales, np.float32) / np.array(named.scales, np.float32)
    if (lows != lows[0]).any() or (highs != highs[0]).any() or lows[0] >= highs[0]:
        return None
    if not ((scales >= _LEAST) & (scales <= _MOST)).all():
        return None
    points = tuple(np.broadcast_to(weight_type.zero_points, scales.shape).tolist())
    divided = replace(weight_type, scales=tuple(scales.tolist()), zero_points=points, axis=0)
    low, high = int(lows[0]), int(highs[0])
    return divided, QuantizedType(named.storage, (1.0,), (named.zero_point,), storage_min=low, storage_max=high)


def _quantized(node: Node, real: relax.Expr, named: QuantizedType) -> relax.Expr:
    """Applies the activation to real values `[N, H, W, C]`, and quantizes them with a scale for each channel."""
    low, high = (relax.const(np.float32(bound), "float32") for bound in node.operator.clamp)
    above = node.emit(relax.op.maximum(node.emit(real, "real"), low), "above")
    return ops.quantize(node.emit(relax.op.minimum(above, high), "clipped"), replace(named, axis=CHANNELS))
