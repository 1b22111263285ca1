"""AVERAGE_POOL_2D and MAX_POOL_2D."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.convolution import window_padding
from service.compiler.qnn import ops

_SCALE_TOLERANCE = 1.0e-6


def average_pool2d(node: Node) -> relax.Var:
    return _pool(node, ops.avg_pool2d)


def max_pool2d(node: Node) -> relax.Var:
    return _pool(node, ops.max_pool2d)


def _pool(node: Node, make: Callable[..., relax.Call]) -> relax.Var:
    """Converts a pooling operator. The kernels pool stored values and ignore scales. The output must have the input's
    quantization; scales that differ by at most 1e-6, as in files of some converters, count as equal.
    """
    node.image()
    in_type, out_type = node.in_type(0), node.out_type(node.activation())
    node.require(in_type.storage == out_type.storage, f"reads {in_type.storage}, but writes {out_type.storage}")
    same_scale = abs(in_type.scale - out_type.scale) <= _SCALE_TOLERANCE
    if in_type.zero_point != out_type.zero_point or not same_scale:
        node.unsupported(f"pools {in_type} into {out_type}, which has another quantization")
    window = (node.int_option("filter_height", least=1), node.int_option("filter_width", least=1))
    strides = (node.int_option("stride_h", least=1), node.int_option("stride_w", least=1))
    call = make(
        node.expr(0),
        in_type,
        replace(in_type, storage_min=out_type.min, storage_max=out_type.max),
        pool_size=window,
        strides=strides,
        padding=window_padding(node, window, strides, (1, 1)),
    )
    return node.emit(call)
