"""Convolutions and linear layers of TorchScript, whose weights are packed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from service.compiler.importers.torch import packed
from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.operators.accumulating import convolved, multiplied, packed_layer
from service.compiler.importers.torch.operators.transposing import transposed
from service.compiler.importers.torch.packed import Packed
from service.compiler.importers.torch.values import Value
from service.compiler.qnn.types import QuantizedType


def _convolution(node: Node, x: Any, parameters: Any, scale: Any, zero_point: Any, *, relu: bool) -> Value:
    image, in_type = node.activation(x)
    # a convolution of rows `[N, C, L]` has the parameters of one of images
    layer = packed_layer(node, parameters, rank=max(len(image.shape), 4))
    out_type = _out_type(node, in_type, scale, zero_point, relu)
    return transposed(node, image, layer, out_type) if layer.is_transposed else convolved(node, image, layer, out_type)


def _linear(node: Node, x: Any, parameters: Any, scale: Any, zero_point: Any, *, relu: bool) -> Value:
    layer = packed_layer(node, parameters, rank=2)
    _, in_type = node.activation(x)
    return multiplied(node, x, layer, _out_type(node, in_type, scale, zero_point, relu))


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


def _conv_transpose1d_prepack(
    _: Node, weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, dilation: Any, groups: Any
) -> Packed:
    return packed.conv1d(weight, bias, stride, padding, dilation, groups, output_padding=output_padding)


def _prepack(rank: int) -> Callable[..., Packed]:
    def convert(_: Node, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any) -> Packed:
        return packed.convolution(weight, bias, stride, padding, dilation, groups, rank=rank)

    return convert


def _transposed_prepack(rank: int) -> Callable[..., Packed]:
    def convert(
        _: Node, weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, dilation: Any, groups: Any
    ) -> Packed:
        return packed.convolution(
            weight, bias, stride, padding, dilation, groups, rank=rank, output_padding=output_padding
        )

    return convert


RULES = {
    **{f"quantized::conv{count}d": _fused(_convolution, relu=False) for count in (1, 2, 3)},
    **{f"quantized::conv{count}d_relu": _fused(_convolution, relu=True) for count in (1, 2, 3)},
    **{f"quantized::conv_transpose{count}d": _fused(_convolution, relu=False) for count in (1, 2, 3)},
    "quantized::conv1d_prepack": _conv1d_prepack,
    "quantized::conv2d_prepack": _prepack(4),
    "quantized::conv3d_prepack": _prepack(5),
    "quantized::conv_transpose1d_prepack": _conv_transpose1d_prepack,
    "quantized::conv_transpose2d_prepack": _transposed_prepack(4),
    "quantized::conv_transpose3d_prepack": _transposed_prepack(5),
    "quantized::linear": _fused(_linear, relu=False),
    "quantized::linear_relu": _fused(_linear, relu=True),
    "quantized::linear_prepack": _linear_prepack,
}
