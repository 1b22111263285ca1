"""Convolutions and linear layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.channels_first import CHANNELS, filters_channels_last
from service.compiler.importers.torch import packed
from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.packed import Packed
from service.compiler.importers.torch.values import Value
from service.compiler.qnn import ops
from service.compiler.qnn.types import QuantizedType, accumulator_type


def _conv2d(node: Node, x: Any, parameters: Any, scale: Any, zero_point: Any, *, relu: bool) -> Value:
    layer = packed_layer(node, parameters, rank=4)
    _, in_type = node.activation(x)
    return convolved(node, x, layer, _out_type(node, in_type, scale, zero_point, relu))


def _linear(node: Node, x: Any, parameters: Any, scale: Any, zero_point: Any, *, relu: bool) -> Value:
    layer = packed_layer(node, parameters, rank=2)
    _, in_type = node.activation(x)
    return multiplied(node, x, layer, _out_type(node, in_type, scale, zero_point, relu))


def convolved(node: Node, x: Any, layer: Packed, out_type: QuantizedType | None) -> Value:
    """Returns the convolution of `[N, C, H, W]`, or of `[N, C, L]` with a kernel of one row. Without `out_type`, the
    result is real.
    """
    image, in_type = node.activation(x)
    if len(image.shape) == 3 and layer.weight.data.shape[2] == 1:
        batch, channels, length = image.shape
        rows = node.value(relax.op.reshape(image.expr, [batch, channels, 1, length]), in_type)
        made = convolved(node, rows, layer, out_type)
        return node.value(relax.op.reshape(made.expr, [*made.shape[:2], made.shape[3]]), out_type)
    make = partial(ops.conv2d, dilation=layer.dilation, groups=layer.groups)
    return _over_images(node, x, layer, make, out_type)


def transposed(
    node: Node, x: Any, layer: Packed, output_padding: tuple[int, int], out_type: QuantizedType | None
) -> Value:
    """Returns the transposed convolution of `[N, C, H, W]`, without groups. Without `out_type`, the result is real."""
    return _over_images(node, x, layer, partial(ops.conv2d_transpose, output_padding=output_padding), out_type)


def _over_images(
    node: Node, x: Any, layer: Packed, make: Callable[..., relax.Call], out_type: QuantizedType | None
) -> Value:
    image, in_type = node.activation(x, rank=4)
    weight_type = type_of_weights(node, layer)

    def body(image: relax.Var) -> relax.Expr:
        filters = relax.const(filters_channels_last(layer.weight.data))
        sides = layer.padding * 2
        sums = make(image, filters, None, in_type, weight_type, strides=layer.stride, padding=sides)
        return _finished(node, sums, layer, accumulator_type(in_type, weight_type, CHANNELS), out_type)

    return node.image(image, body, out_type)


def multiplied(node: Node, x: Any, layer: Packed, out_type: QuantizedType | None) -> Value:
    """Returns rows `[…, K]` times the transposed weights. Without `out_type`, the result is real."""
    x, in_type = node.activation(x)
    weight_type = type_of_weights(node, layer)
    node.require(len(x.shape) > 0, "has a scalar operand")
    *rows, depth = x.shape
    matrix = x.expr if len(rows) == 1 else node.emit(relax.op.reshape(x.expr, [int(np.prod(rows)), depth]), "rows")
    weights = relax.const(np.ascontiguousarray(layer.weight.data))
    accumulators = ops.dense(matrix, weights, None, in_type, weight_type)
    result = _finished(node, accumulators, layer, accumulator_type(in_type, weight_type, 1), out_type)
    if len(rows) == 1:
        return node.value(result, out_type)
    return node.value(relax.op.reshape(node.emit(result, "rows"), [*rows, len(layer.weight.data)]), out_type)


def _finished(
    node: Node, accumulators: relax.Expr, layer: Packed, in_type: QuantizedType, out_type: QuantizedType | None
) -> relax.Expr:
    """Returns the result of a layer. The bias is added as real values, as PyTorch's engines do."""
    bias = None if layer.bias is None else relax.const(np.ascontiguousarray(layer.bias))
    sums = node.emit(accumulators, "accumulators")
    if out_type is not None:
        return ops.requantize(sums, in_type, out_type, bias)
    real = ops.dequantize(sums, in_type)
    return real if bias is None else relax.op.add(node.emit(real, "products"), bias)


def packed_layer(node: Node, parameters: Any, rank: int) -> Packed:
    if not isinstance(parameters, Packed) or parameters.weight.data.ndim != rank:
        node.unsupported("has no packed weights of the right kind")
    return parameters


def type_of_weights(node: Node, layer: Packed) -> QuantizedType:
    assert layer.weight.quantization is not None  # packed.py
    return node.typed("int8", layer.weight.quantization)


def _out_type(node: Node, in_type: QuantizedType, scale: Any, zero_point: Any, relu: bool) -> QuantizedType:
    out_type = node.per_tensor(in_type.storage, scale, zero_point)
    if not relu:
        return out_type
    if out_type.zero_point >= out_type.max:
        node.unsupported("has an output that can only have one value")
    return replace(out_type, storage_min=out_type.zero_point)


def _fused(rule: Callable[..., Value], *, relu: bool) -> Callable[..., Value]:
    def convert(node: Node, qx: Any, packed_weight: Any, output_scale: Any, output_zero_point: Any) -> Value:
        return rule(node, qx, packed_weight, output_scale, output_zero_point, relu=relu)

    return convert


def _linear_prepack(_: Node, weight: Any, bias: Any = None) -> Packed:
    return packed.linear(weight, bias)


def _conv1d_prepack(_: Node, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any) -> Packed:
    return packed.conv1d(weight, bias, stride, padding, dilation, groups)


def _conv2d_prepack(_: Node, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any) -> Packed:
    return packed.conv2d(weight, bias, stride, padding, dilation, groups)


RULES = {
    "quantized::conv1d": _fused(_conv2d, relu=False),
    "quantized::conv1d_prepack": _conv1d_prepack,
    "quantized::conv1d_relu": _fused(_conv2d, relu=True),
    "quantized::conv2d": _fused(_conv2d, relu=False),
    "quantized::conv2d_relu": _fused(_conv2d, relu=True),
    "quantized::linear": _fused(_linear, relu=False),
    "quantized::linear_relu": _fused(_linear, relu=True),
    "quantized::linear_prepack": _linear_prepack,
    "quantized::conv2d_prepack": _conv2d_prepack,
}
