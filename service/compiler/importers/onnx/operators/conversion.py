"""QuantizeLinear, DequantizeLinear, and conversions between two stored types."""

from __future__ import annotations

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.file.schema import DTYPES
from service.compiler.importers.onnx.node import Node
from service.compiler.importers.onnx.operators.stored import computed
from service.compiler.qnn import ops
from service.compiler.qnn.types import QuantizedType

_STORAGES = ("int4", "uint4", "int8", "uint8", "int16", "uint16", "int32")


def quantize_linear(node: Node) -> relax.Var:
    """Inputs: x, y_scale, y_zero_point. Converts float32 to stored values. The type of the stored values is that of the
    zero point, or `output_dtype`.
    """
    node.require_supported(node.dtype(0) == "float32", f"quantizes {node.dtype(0)}, not float32", node.name(0))
    if _is_computed(node):
        return computed.quantize(node)
    named = DTYPES.get(node.attribute("output_dtype", 0), "uint8")
    storage, (axis, rest) = node.storage(2) if node.has(2) else named, _rest(node)
    if not rest:
        quantized = node.clamped(_type(node, storage))
        return node.typed(node.emit(ops.quantize(node.expr(0), quantized)), quantized)
    quantized = _type(node, storage, _whole(node, axis, rest))
    stored = node.emit(ops.quantize(_padded(node, axis, rest), quantized), "blocks")
    cut = node.emit(relax.op.strided_slice(stored, [axis], [0], [node.shape(0)[axis]], [1]))
    return node.typed(cut, quantized)


def dequantize_linear(node: Node) -> relax.Var:
    """Inputs: x, x_scale, x_zero_point. Converts stored values to float32."""
    if _is_computed(node):
        return computed.dequantize(node)
    storage = node.storage(0)
    node.require(not node.has(2) or node.storage(2) == storage, f"has a zero point that is not {storage}")
    axis, rest = _rest(node)
    if rest:
        quantized = _type(node, storage, _whole(node, axis, rest))
        real = node.emit(ops.dequantize(_padded(node, axis, rest), quantized), "blocks")
        return node.emit(relax.op.strided_slice(real, [axis], [0], [node.shape(0)[axis]], [1]))
    quantized = _type(node, storage)
    node.state.types.setdefault(node.name(0), quantized)
    return node.emit(ops.dequantize(node.expr(0), quantized))


def _is_computed(node: Node) -> bool:
    """Returns true if the scale or the zero point is computed at run time."""
    return any(node.has(index) and node.constant_data(index) is None for index in (1, 2))


def _rest(node: Node) -> tuple[int, int]:
    """Returns the axis of the blocks, and how many elements its last block lacks."""
    shape, size = node.shape(0), node.attribute("block_size", 0)
    if size <= 0 or not shape:
        return 0, 0
    axis = node.axis(node.attribute("axis", 1), len(shape))
    return axis, -shape[axis] % size


def _whole(node: Node, axis: int, rest: int) -> tuple[int, ...]:
    """Returns the shape of the operand with `rest` more elements along an axis."""
    return tuple(size + (rest if each == axis else 0) for each, size in enumerate(node.shape(0)))


def _padded(node: Node, axis: int, rest: int) -> relax.Expr:
    """Returns the operand with `rest` zeros after its elements along an axis, which fill the last block."""
    widths = [(0, rest if each == axis else 0) for each in range(len(node.shape(0)))]
    known = node.known_value(0)
    if known is not None:
        return node.literal(np.pad(known, widths))
    return node.emit(relax.op.nn.pad(node.expr(0), [width for pair in widths for width in pair]), "blocks")


def _type(node: Node, storage: str, shape: tuple[int, ...] | None = None) -> QuantizedType:
    """Returns the quantized type that a QuantizeLinear writes or a DequantizeLinear reads.

    Args:
        shape: the shape of the quantized tensor, by default that of the operand.
    """
    points = node.data(2) if node.has(2) else None
    rank, axis = len(node.shape(0)), node.attribute("axis", 1)
    size = node.attribute("block_size", 0)
    if not size and node.data(1).size == 1:
        return node.type_of(1, points, storage, None, _STORAGES)
    axis = node.axis(axis, rank)
    if not size:
        return node.type_of(1, points, storage, axis, _STORAGES)
    node.require(size > 0, f"has the invalid block_size {size}")
    return node.blocked_type(1, points, storage, _STORAGES, axis, size, shape)


def requantize(node: Node) -> relax.Var:
    """Inputs: x, x_scale, x_zero_point, y_scale, y_zero_point. `qdq` creates this operator from DequantizeLinear and
    QuantizeLinear.
    """
    in_type, out_type = node.stored_types()
    if in_type == out_type:
        return node.typed(node.emit(node.expr(0)), out_type)
    return node.typed(node.emit(ops.requantize(node.expr(0), in_type, out_type)), out_type)
