"""Convolutions and linear layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.channels_first import CHANNELS, filters_channels_last
from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.operators import volumes
from service.compiler.importers.torch.packed import Packed
from service.compiler.importers.torch.tensors import Tensor
from service.compiler.importers.torch.values import Value
from service.compiler.qnn import ops
from service.compiler.qnn.types import QuantizedType, accumulator_type


def convolved(node: Node, x: Any, layer: Packed, out_type: QuantizedType | None) -> Value:
    """Returns the convolution of `[N, C, H, W]`; of `[N, C, L]`, with a kernel of one row; or of `[N, C, D, H, W]`.
    Without `out_type`, the result is real.
    """
    image, in_type = node.activation(x)
    if len(image.shape) == 5:
        return _of_volume(node, image, layer, out_type)
    if len(image.shape) == 3 and layer.weight.data.shape[2] == 1:
        batch, channels, length = image.shape
        rows = node.value(relax.op.reshape(image.expr, [batch, channels, 1, length]), in_type)
        made = convolved(node, rows, layer, out_type)
        return node.value(relax.op.reshape(made.expr, [*made.shape[:2], made.shape[3]]), out_type)
    make = partial(ops.conv2d, dilation=layer.dilation, groups=layer.groups)
    return over_images(node, x, layer, make, out_type)


def _of_volume(node: Node, x: Value, layer: Packed, out_type: QuantizedType | None) -> Value:
    weights, (_, down, across) = layer.weight.data, layer.stride
    stacked = volumes.stacked(
        node,
        x,
        weights.shape[2],
        layer.groups,
        stride=layer.stride[0],
        dilation=layer.dilation[0],
        sides=(layer.padding[0], layer.padding[0]),
    )
    filters = Tensor(volumes.stacked_filters(weights), layer.weight.quantization)
    flat = replace(
        layer,
        weight=filters,
        stride=(down, across),
        padding=layer.padding[1:],
        dilation=layer.dilation[1:],
    )
    return volumes.unstacked(node, convolved(node, stacked, flat, out_type), x.shape[0])


def over_images(
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
    if not isinstance(parameters, Packed) or parameters.weight.data.ndim != rank or not parameters.weight.quantization:
        node.unsupported("has no packed weights of the right kind")
    return parameters


def type_of_weights(node: Node, layer: Packed) -> QuantizedType:
    assert layer.weight.quantization is not None  # packed.py
    return node.typed("int8", layer.weight.quantization)
