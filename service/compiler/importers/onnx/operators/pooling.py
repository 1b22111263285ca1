"""MaxPool, QLinearAveragePool and QLinearGlobalAveragePool."""

from __future__ import annotations

from tvm import relax

from service.compiler.importers.channels_first import in_channels_last
from service.compiler.importers.onnx.node import Node
from service.compiler.importers.onnx.operators.windows import padding_of, strides_of
from service.compiler.qnn import ops
from service.compiler.qnn.types import QuantizedType


def max_pool(node: Node) -> relax.Var:
    """Of stored values, which are in the order of the real ones."""
    image, window, strides = _window(node)
    storage = node.dtype(0)
    if storage not in ("int8", "uint8"):
        node.unsupported(f"works on {storage}; stored values of 8 bits can be compiled", node.name(0))
    if node.attribute("dilations", (1, 1)) != (1, 1):
        node.unsupported("is dilated")
    quantized = node.state.types.get(node.name(0), QuantizedType(storage, (1.0,)))
    padding = padding_of(node, image, window, strides, (1, 1))

    def body(x: relax.Var) -> relax.Expr:
        return ops.max_pool2d(x, quantized, quantized, pool_size=window, strides=strides, padding=padding)

    return node.typed(in_channels_last(node.emit, node.expr(0), body), quantized)


def qlinear_average_pool(node: Node) -> relax.Var:
    """X, x_scale, x_zero_point, y_scale, y_zero_point (com.microsoft)."""
    image, window, strides = _window(node)
    _channels_first(node)
    in_type = node.quantized(0, 1, 2)
    out_type, padding = node.output_type(3, 4, in_type.storage), padding_of(node, image, window, strides, (1, 1))
    whole = bool(node.attribute("count_include_pad", 0))

    def body(x: relax.Var) -> relax.Expr:
        return ops.avg_pool2d(
            x, in_type, out_type, pool_size=window, strides=strides, padding=padding, count_include_pad=whole
        )

    return node.typed(in_channels_last(node.emit, node.expr(0), body), out_type)


def qlinear_global_average_pool(node: Node) -> relax.Var:
    """X, x_scale, x_zero_point, y_scale, y_zero_point (com.microsoft): the mean of each channel."""
    shape = node.shape(0)
    node.require(len(shape) >= 3, f"has an input of {list(shape)}, not [N, C, …]", node.name(0))
    _channels_first(node)
    in_type = node.quantized(0, 1, 2)
    out_type = node.output_type(3, 4, in_type.storage)
    call = ops.mean(node.expr(0), in_type, out_type, axes=list(range(2, len(shape))), keepdims=True)
    return node.typed(node.emit(call), out_type)


def _window(node: Node) -> tuple[tuple[int, ...], tuple[int, int], tuple[int, int]]:
    image = node.shape(0)
    if len(image) != 4:
        node.unsupported(f"has an input of {list(image)}; images of [N, C, H, W] can be compiled", node.name(0))
    if any(node.operator.outputs[1:]):
        node.unsupported("gives the places of its maxima too")
    if node.attribute("storage_order", 0):
        node.unsupported("stores columns first")
    node.require("kernel_shape" in node.operator.attributes, "lacks its kernel_shape")
    rows, columns = node.integers_attribute("kernel_shape", (1, 1), 1)
    return image, (rows, columns), strides_of(node)


def _channels_first(node: Node) -> None:
    if node.attribute("channels_last", 0):
        node.unsupported("has its channels last")
