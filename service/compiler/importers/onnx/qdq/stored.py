"""Convolutions of stored values that ONNX Runtime computes in float32. Here they are sums of integers that are scaled,
with a real bias.

ONNX Runtime computes these convolutions on dequantized values; only the rounding of its sums differs from Octet's. Such
convolutions occur if the result or the bias is real. They also occur around depthwise convolutions, because NNCF and
OpenVINO quantize the input of a depthwise convolution by channel. Each channel is summed separately, so the scale of a
channel can be multiplied into the scale of the channel's filters.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from service.compiler.importers.onnx.model import STORED_CONV, Tensor
from service.compiler.importers.onnx.qdq.biases import rounds_operands, stored_bias
from service.compiler.importers.onnx.qdq.rounded_weights import rounded_weights
from service.compiler.importers.onnx.rewriting import (
    DEQUANTIZE,
    OnnxGraph,
    channel_parameters,
    is_simple,
    parameters,
    storage_of,
    weights_of,
)
from service.compiler.importers.qdq import Operator
from service.core.models.arrays import Array

Operand = tuple[str, str, str]  # stored values, scale, zero point


def convolution(graph: OnnxGraph, operator: Operator, conversion: Operator | None) -> list[Operator]:
    """Returns `STORED_CONV` if the operand comes from a DequantizeLinear, possibly through a Pad of zeros; otherwise an
    empty list.
    """
    name, bias = operator.inputs[0], _real_bias(graph, operator)
    padding = graph.made_by(name, "Pad")
    x = _operand(graph, padding.inputs[0] if padding is not None and padding.inputs else name)
    w = weights_of(graph, operator.inputs[1], axis=0) or rounded_weights(graph, operator)
    if x is None or w is None or bias is None:
        return []
    front: list[Operator] = []
    if padding is not None:
        if not _pads_zeros(graph, padding):
            return []
        stored = graph.new_name(name)
        front = [replace(padding, inputs=(x[0], padding.inputs[1], x[2], *padding.inputs[3:]), outputs=(stored,))]
        x = (stored, *x[1:])
    if graph.scalar(x[1]) is None:
        folded = _by_channel(graph, operator, x, w)
        if folded is None:
            return []
        x, w = folded
    if bias == operator.inputs[-1] and rounds_operands(graph, operator):
        bias = stored_bias(graph, bias, x, w)
        if bias is None:
            return []
    return [*front, replace(operator, op_type=STORED_CONV, inputs=(*x, *w, bias, *_result(graph, conversion)))]


def _result(graph: OnnxGraph, conversion: Operator | None) -> tuple[str, ...]:
    """Returns scale and zero point of a quantized result."""
    if conversion is None:
        return ()
    scale, point = parameters(conversion)
    return scale, point or _constant(graph, scale, np.zeros((), storage_of(graph, conversion)))


def _real_bias(graph: OnnxGraph, operator: Operator) -> str | None:
    """Returns the bias as a float32 constant. Returns "" if the layer has no bias, and None if the bias is computed or
    is not stored in 8 bits.
    """
    name = operator.inputs[2] if len(operator.inputs) > 2 else ""
    conversion = graph.made_by(name, DEQUANTIZE) if name else None
    if not name or conversion is None:
        known = graph.known_value(name)
        return name if not name or (known is not None and known.dtype == np.float32) else None
    values, scale = graph.known_value(conversion.inputs[0]), graph.scalar(conversion.inputs[1])
    if values is None or scale is None or not is_simple(graph, conversion):
        return None
    point = int(graph.scalar(parameters(conversion)[1]) or 0)
    return _constant(graph, name, (values.astype(np.int32) - point).astype(np.float32) * np.float32(scale))


def _operand(graph: OnnxGraph, name: str) -> Operand | None:
    """Returns the operand of a DequantizeLinear of 8-bit values that has one zero point, and one scale or one for each
    channel.
    """
    conversion = graph.made_by(name, DEQUANTIZE)
    if conversion is not None and is_simple(graph, conversion):
        return (conversion.inputs[0], *parameters(conversion))
    found = None if conversion is None else channel_parameters(graph, conversion)
    if conversion is None or found is None:
        return None
    scale, point = parameters(conversion)
    return conversion.inputs[0], scale, _constant(graph, point, found[1])


def _by_channel(graph: OnnxGraph, operator: Operator, x: Operand, w: Operand) -> tuple[Operand, Operand] | None:
    """For a depthwise convolution, returns the operands with each channel's scale multiplied into the scale of its
    filters.
    """
    weights, given, own = graph.constants[w[0]], graph.known_value(x[1]), graph.known_value(w[1])
    assert given is not None
    channels = given.size
    depthwise = operator.attributes.get("group", 1) == channels and weights.shape[1:2] == (1,)
    if not depthwise or own is None or own.dtype != np.float32 or weights.shape[0] % channels:
        return None
    filters = weights.shape[0]
    if own.size not in (1, filters):
        return None
    scales = np.repeat(given.reshape(-1), filters // channels) * own.reshape(-1)
    points = graph.known_value(w[2]) if w[2] else np.zeros(1, weights.dtype)
    if points is None or points.size not in (1, filters):
        return None
    one = _constant(graph, x[1], np.ones((), np.float32))
    scale = _constant(graph, w[1], np.ascontiguousarray(np.broadcast_to(scales, (filters,))))
    point = _constant(graph, w[2] or w[0], np.ascontiguousarray(np.broadcast_to(points.reshape(-1), (filters,))))
    return (x[0], one, x[2]), (w[0], scale, point)


def _pads_zeros(graph: OnnxGraph, padding: Operator) -> bool:
    """Returns true if a Pad pads with zeros, which are stored as the zero point."""
    inputs, mode = padding.inputs, padding.attributes.get("mode", "constant")
    if mode not in ("constant", b"constant") or len(inputs) < 2 or len(inputs) > 3:
        return False
    return len(inputs) == 2 or inputs[2] == "" or graph.scalar(inputs[2]) == 0


def _constant(graph: OnnxGraph, stem: str, data: Array) -> str:
    name = graph.new_name(stem)
    graph.constants[name] = Tensor(name, data.dtype.name, data.shape, data)
    return name
