"""Operators on float32 activations with 8-bit weights: LiteRT's hybrid kernels, for dynamic-range quantization.

Activations are quantized at run time, by row or by sample, so that products are sums of integers; see `ops.dynamic`.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from service.compiler.importers.builder.dynamic import STORED, Ranges
from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.convolution import (
    bias_of_reals,
    conv_options,
    filters_and_groups,
    output_channels_first,
    weights_type,
)
from service.compiler.importers.tflite.operators.elementwise import clamped
from service.compiler.importers.tflite.operators.fully_connected import restored, rows_of
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.ops.dynamic import CONV2D, DENSE, DEPTHWISE, ZERO_POINT
from service.compiler.qnn.types import QuantizedType


def fully_connected(node: Node) -> relax.Expr:
    """Converts FULLY_CONNECTED, with one range for each row (`EvalHybrid` in tflite/kernels/fully_connected.cc)."""
    x, units = rows_of(node)
    weight_type = weights_type(node, channel_axis=0)
    symmetric = not node.option("asymmetric_quantize_inputs")
    ranges = Ranges(node, x, [1], DENSE, symmetric=symmetric)
    sums = node.emit(ops.dense(ranges.quantized(), node.constant(1), None, STORED, STORED), "sums")
    scaled = _scaled(node, sums, ranges, weight_type, units)
    return restored(node, clamped(node, scaled, node.activation()), units)


def convolution(*, depthwise: bool) -> Callable[[Node], relax.Expr]:
    """Returns the converter of CONV_2D or DEPTHWISE_CONV_2D, with one range for each sample. The range is symmetric for
    a CONV_2D whose weights have one scale (`EvalHybrid` in tflite/kernels/conv.cc), and otherwise asymmetric
    (`EvalHybridPerChannel` there and in tflite/kernels/depthwise_conv.cc).
    """

    def convert(node: Node) -> relax.Expr:
        filters, groups = filters_and_groups(node, depthwise=depthwise)
        weight_type = weights_type(node, channel_axis=3 if depthwise else 0)
        if depthwise and weight_type.is_per_tensor and filters > 1:
            node.unsupported("has one scale for all its filters, but LiteRT's kernel reads one for each", node.input(1))
        options, weight = conv_options(node), node.constant(1, output_channels_first if depthwise else None)
        padding, kernel = options.pop("padding"), DEPTHWISE if depthwise else CONV2D
        # The delegate computes such a convolution as a dense layer on the pixels. Each pixel then has its own range.
        is_dense = (*shape_of(weight)[1:3], *options["strides"]) == (1, 1, 1, 1) and not any(padding)
        by_pixel = not depthwise and groups == 1 and is_dense
        axes, shared = ([3], [1, 2]) if by_pixel else ([1, 2, 3], [])
        symmetric = not depthwise and weight_type.is_per_tensor
        ranges = Ranges(node, node.expr(0), axes, kernel, shared=shared, symmetric=symmetric)
        stored = ranges.quantized()
        if any(padding):
            stored = node.emit(ops.dynamic_pad(stored, ranges.parameter(ZERO_POINT), padding), "padded")
        call = ops.conv2d(stored, weight, None, STORED, STORED, padding=(0,) * 4, groups=groups, **options)
        scaled = _scaled(node, node.emit(call, "sums"), ranges, weight_type, filters, channels=3 if depthwise else 0)
        return clamped(node, scaled, node.activation())

    return convert


def _scaled(
    node: Node, sums: relax.Expr, ranges: Ranges, weight_type: QuantizedType, filters: int, channels: int = 0
) -> relax.Expr:
    return node.emit(ranges.scaled(sums, node.data(1), weight_type, bias_of_reals(node, filters), channels), "scaled")
