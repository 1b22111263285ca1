"""Dense layers, products of matrices, and attention."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax

from service.compiler.importers.builder.dynamic import STORED, Ranges
from service.compiler.importers.executorch.graph import Scales
from service.compiler.importers.executorch.node import Node
from service.compiler.importers.executorch.values import Dynamic, Stored, Value
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.ops.dynamic import BLOCKS, DENSE, SCALE, ZERO_POINT
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.core.errors import InvalidInput
from service.core.models.arrays import Array

_TRANSPOSE_WEIGHTS = 1  # XNN_FLAG_TRANSPOSE_WEIGHTS: weights are [K, O]


def _fully_connected(node: Node) -> Value:
    """`FullyConnected`: weights `[O, K]`. The input is `[…, K]`."""
    turned, filter_ = bool(node.check_flags(_TRANSPOSE_WEIGHTS)), node.tensor("filter_id")
    node.require(len(filter_.shape) == 2, f"has weights of shape {list(filter_.shape)}")
    units, depth = filter_.shape[::-1] if turned else filter_.shape
    x = node.value("input1_id")
    shape = node.extents(x)
    fits = shape[-1:] == (depth,) and min(units, depth) > 0
    node.require(fits, f"multiplies rows of shape {list(shape)} by weights of shape {list(filter_.shape)}")
    count = math.prod(shape[:-1])
    if isinstance(x, Stored | Dynamic):
        node.require_supported(not turned, "has transposed weights of integers")
        rows: Value = node.move_elements(x, lambda x: relax.op.reshape(x, (count, depth))) if len(shape) != 2 else x
        made: Value = (
            _stored_product(node, rows, units) if isinstance(x, Stored) else _dynamic_product(node, rows, units)
        )
        return (
            node.move_elements(made, lambda x: relax.op.reshape(x, (*shape[:-1], units))) if len(shape) != 2 else made
        )
    if filter_.data is None or filter_.data.dtype != np.float32:
        node.unsupported("has weights that are not a constant of float32")
    weights = filter_.data if turned else np.ascontiguousarray(filter_.data.T)
    bias = node.bias("bias_id", units)
    node.require(bias is None or bias.dtype == np.float32, "adds a bias of integers to real values")
    operands = (node.expr("input1_id"), node.literal(weights), None if bias is None else node.literal(bias))
    return node.clamped(node.emit(ops.real_matmul(*operands)))


def _stored_product(node: Node, rows: Stored, units: int) -> Stored:
    data, scales = node.weights("filter_id")
    weight_type, bias, out_type = node.weight_type(scales, 0, units), node.bias("bias_id", units), node.out_type()
    node.require(bias is None or bias.dtype == np.int32, "adds a bias of real values to stored ones")
    constant = None if bias is None else node.literal(bias)
    sums = node.emit(ops.dense(rows.expr, node.literal(data), constant, rows.type, weight_type), "accumulate")
    node.require(rows.type.storage == out_type.storage, f"reads {rows.type.storage}, but writes {out_type.storage}")
    return Stored(node.emit(ops.requantize(sums, accumulator_type(rows.type, weight_type, 1), out_type)), out_type)


def _dynamic_product(node: Node, rows: Dynamic, units: int) -> relax.Expr:
    """Returns the products of rows that are quantized with one range each."""
    data, scales = node.weights("filter_id")
    bias = node.bias("bias_id", units)
    node.require(bias is None or bias.dtype == np.float32, "adds a bias of integers to real values")
    constant = None if bias is None else node.literal(bias)
    if scales.block:
        return node.clamped(_product_in_blocks(node, rows, data, scales, constant))
    ranges = Ranges(node, rows.expr, [1], DENSE, symmetric=False)
    sums = node.emit(ops.dense(ranges.quantized(), node.literal(data), None, STORED, STORED), "sums")
    return node.clamped(node.emit(ranges.scaled(sums, data, node.weight_type(scales, 0, units), constant), "scaled"))


def _product_in_blocks(
    node: Node, rows: Dynamic, data: Array, scales: Scales, bias: relax.Constant | None
) -> relax.Expr:
    """Returns the products of rows and of weights that have a scale for each block of a row. The stored rows are
    multiplied by the real weights, because each block's sum of integers has its own scale.
    """
    (units, depth), size = data.shape, scales.block
    node.require(depth % size == 0, f"has rows of {depth} weights in blocks of {size}")
    grid = (units, depth // size)
    node.require(len(scales.scales) == math.prod(grid), f"has {len(scales.scales)} scales for {math.prod(grid)} blocks")
    try:
        type_ = QuantizedType("int4", scales.scales, blocks=((0, 1), (1, size)), grid=grid)
    except InvalidInput as error:
        node.malformed(f"has weights whose {error.message}")
    ranges = Ranges(node, rows.expr, [1], BLOCKS)
    stored = node.emit(relax.op.astype(ranges.quantized(), "float32"), "stored")
    centered = node.emit(relax.op.subtract(stored, ranges.parameter(ZERO_POINT)), "centered")
    weights = node.emit(ops.dequantize(node.literal(data), type_), "weights")
    products = node.emit(ops.real_matmul(centered, node.emit(relax.op.permute_dims(weights), "columns")), "products")
    scaled = node.emit(relax.op.multiply(products, ranges.parameter(SCALE)), "scaled")
    return scaled if bias is None else node.emit(relax.op.add(scaled, bias), "biased")


def _batch_matrix_multiply(node: Node) -> Value:
    node.check_flags()
    return node.clamped(node.step("MatMul", node.expr("input1_id"), node.expr("input2_id")))


def _attention(node: Node) -> Value:
    """`ScaledDotProductAttention`: queries `[N, H, T, C]`, keys and values `[N, H, U, C]`, a scale for each of C, and a
    mask `[T, U]` that is added.
    """
    node.check_flags()
    query = node.step("Mul", node.expr("query_id"), node.reals("scale_id"))
    key = node.expr("key_id")
    rank = len(shape_of(key))
    turned = node.step("Transpose", key, perm=(*range(rank - 2), rank - 1, rank - 2))
    scores = node.step("Add", node.step("MatMul", query, turned), node.reals("mask_id"))
    return node.clamped(node.step("MatMul", node.step("Softmax", scores, axis=-1), node.expr("value_id")))


RULES: dict[str, Callable[[Node], Value]] = {
    "BatchMatrixMultiply": _batch_matrix_multiply,
    "FullyConnected": _fully_connected,
    "ScaledDotProductAttention": _attention,
}
