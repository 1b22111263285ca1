"""AVERAGE_POOL_2D and MAX_POOL_2D."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tvm import relax

from service.compiler.importers.builder import pooling as builder
from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.convolution import window_padding

_SCALE_TOLERANCE = 1.0e-6


def pool(*, is_max: bool) -> Callable[[Node], relax.Var]:
    """Returns the converter of a pooling operator. The kernels pool stored values and ignore scales. The output must
    have the input's quantization; scales that differ by at most 1e-6, as in files of some converters, count as equal.
    """

    def convert(node: Node) -> relax.Var:
        node.image()
        in_type, out_type = node.stored_types(node.activation())
        same_scale = abs(in_type.scale - out_type.scale) <= _SCALE_TOLERANCE
        if in_type.zero_point != out_type.zero_point or not same_scale:
            node.unsupported(f"pools {in_type} into {out_type}, which has another quantization")
        made = replace(in_type, storage_min=out_type.min, storage_max=out_type.max)
        return node.emit(builder.pooled(node, node.expr(0), windows_of(node), (in_type, made), is_max=is_max))

    return convert


def windows_of(node: Node) -> builder.Windows:
    """Returns the windows of a pooling operator."""
    size, strides = node.pair_option("filter_height", "filter_width"), node.pair_option("stride_h", "stride_w")
    return builder.Windows((1, 2), size, strides, window_padding(node, size, strides, (1, 1)))
