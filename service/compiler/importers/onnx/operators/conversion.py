"""QuantizeLinear and DequantizeLinear: where float32 enters and leaves; and one type to another."""

from __future__ import annotations

from tvm import relax

from service.compiler.importers.onnx.node import Node
from service.compiler.qnn import ops


def quantize_linear(node: Node) -> relax.Var:
    """x, y_scale, y_zero_point: float32 -> stored values."""
    node.require(node.dtype(0) == "float32", f"quantizes {node.dtype(0)}, not float32", node.name(0))
    points = node.data(2) if node.has(2) else None
    quantized = node.type_of(1, points, "uint8" if points is None else points.dtype.name, _axis(node))
    return node.typed(node.emit(ops.quantize(node.expr(0), quantized)), quantized)


def dequantize_linear(node: Node) -> relax.Var:
    """x, x_scale, x_zero_point: stored values -> float32."""
    quantized = node.quantized(0, 1, 2, _axis(node))
    return node.emit(ops.dequantize(node.expr(0), quantized))


def requantize(node: Node) -> relax.Var:
    """x, x_scale, x_zero_point, y_scale, y_zero_point: what `qdq` makes of DequantizeLinear and QuantizeLinear."""
    in_type = node.quantized(0, 1, 2)
    out_type = node.output_type(3, 4, in_type.storage)
    if in_type == out_type:
        return node.typed(node.emit(node.expr(0)), out_type)
    return node.typed(node.emit(ops.requantize(node.expr(0), in_type, out_type)), out_type)


def _axis(node: Node) -> int | None:
    """The axis of several scales."""
    if node.attribute("block_size", 0):
        node.unsupported("is quantized in blocks")
    if node.data(1).size == 1:
        return None
    rank, axis = len(node.shape(0)), node.attribute("axis", 1)
    node.require(-rank <= axis < rank, f"has axis {axis} of {rank}")
    return int(axis % rank)
