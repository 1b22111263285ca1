"""QuantizeLinear, DequantizeLinear, and conversions between two stored types."""

from __future__ import annotations

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.file.schema import DTYPES
from service.compiler.importers.onnx.node import Node
from service.compiler.qnn import ops
from service.compiler.qnn.types import QuantizedType

_STORAGES = ("int4", "uint4", "int8", "uint8", "int16", "uint16", "int32")


def quantize_linear(node: Node) -> relax.Var:
    """Inputs: x, y_scale, y_zero_point. Converts float32 to stored values. The type of the stored values is that of the
    zero point, or `output_dtype`.
    """
    node.require_supported(node.dtype(0) == "float32", f"quantizes {node.dtype(0)}, not float32", node.name(0))
    named = DTYPES.get(node.attribute("output_dtype", 0), "uint8")
    quantized = node.clamped(_type(node, node.storage(2) if node.has(2) else named))
    return node.typed(node.emit(ops.quantize(node.expr(0), quantized)), quantized)


def dequantize_linear(node: Node) -> relax.Var:
    """Inputs: x, x_scale, x_zero_point. Converts stored values to float32."""
    storage = node.storage(0)
    node.require(not node.has(2) or node.storage(2) == storage, f"has a zero point that is not {storage}")
    shape, axis, size = node.shape(0), node.attribute("axis", 1), node.attribute("block_size", 0)
    rest = -shape[node.axis(axis, len(shape))] % size if size > 0 and shape else 0
    if rest:
        return _of_partial_blocks(node, storage, node.axis(axis, len(shape)), rest)
    quantized = _type(node, storage)
    node.state.types.setdefault(node.name(0), quantized)
    return node.emit(ops.dequantize(node.expr(0), quantized))


def _of_partial_blocks(node: Node, storage: str, axis: int, rest: int) -> relax.Var:
    """Converts stored values whose last block along `axis` lacks `rest` elements. These are added before, and removed
    afterwards.
    """
    shape, known = node.shape(0), node.known_value(0)
    widths = [(0, rest if each == axis else 0) for each in range(len(shape))]
    whole = tuple(size + after for size, (_, after) in zip(shape, widths, strict=True))
    quantized = _type(node, storage, whole)
    if known is not None:
        x: relax.Expr = node.literal(np.pad(known, widths))
    else:
        flat = [width for pair in widths for width in pair]
        x = node.emit(relax.op.nn.pad(node.expr(0), flat), "blocks")
    real = node.emit(ops.dequantize(x, quantized), "blocks")
    return node.emit(relax.op.strided_slice(real, [axis], [0], [shape[axis]], [1]))


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
