"""Products of matrices: QLinearMatMul, and MatMul and Gemm of real values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.node import Node
from service.compiler.importers.onnx.operators.convolution import bias_of
from service.compiler.importers.onnx.operators.real import float32
from service.compiler.importers.qdq import UNBOUNDED
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.core.models.arrays import Array

ToOutput = Callable[[relax.Var, int], relax.Expr]


def qlinear_matmul(node: Node) -> relax.Var:
    """Inputs: a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point. Multiplies `[…, M, K]` by
    constant `[K, N]`, or by computed `[…, K, N]` with one scale. Without y_scale (`STORED_MATMUL`), the output is
    float32.
    """
    if node.known_value(3) is None or len(node.shape(3)) > 2 or node.known_value(0) is not None:
        return _computed(node)
    return product(node, transposed=False, bias=None, output=6)


def _computed(node: Node) -> relax.Var:
    types = node.quantized(0, 1, 2), node.quantized(3, 4, 5)
    out_type = node.output_type(6, 7, types[0].storage) if node.has(6) else None
    sums = node.emit(ops.matmul(node.expr(0), node.expr(3), *types), "accumulate")
    accumulator = accumulator_type(*types, axis=0)
    if out_type is None:
        return node.emit(ops.dequantize(sums, accumulator))
    return node.typed(node.emit(ops.requantize(sums, accumulator, out_type)), out_type)


def qlinear_matmul_add(node: Node) -> relax.Var:
    """Inputs: a, a_scale, a_zero_point, b, b_scale, b_zero_point, the row as real values, the row in steps of a_scale *
    b_scale, b as real values if the file has them, y_scale, y_zero_point. `qdq` creates this operator from a MatMul, an
    Add and a QuantizeLinear.

    For matrices, ONNX Runtime fuses the MatMul and the Add to a Gemm. ONNX Runtime also does so for more dimensions if
    all of them are known. It then puts Reshapes around the Gemm, and moves the quantization before the second Reshape
    unless an activation follows. A quantized Gemm rounds the row (see `biases.stored_bias`) and real weights. Without
    the quantization, the Gemm multiplies and adds real values.
    """
    is_matrix = len(node.shape(0)) == 2
    is_gemm = is_matrix or bool(node.attribute("has_known_shape", 0))
    is_quantized = is_gemm and (is_matrix or node.operator.clamp == UNBOUNDED)
    in_type, weight_type = node.quantized(0, 1, 2), node.quantized(3, 4, 5, axis=1)
    if is_quantized and node.attribute("is_integer", 0):
        return product(node, transposed=False, bias=7, output=9)
    if node.attribute("is_scaled", 0) and not is_gemm:
        products = product(node, transposed=False, bias=None, output=None)
    else:
        x = node.emit(ops.dequantize(node.expr(0), in_type), "real")
        is_real = node.has(8) and not is_quantized
        weights = node.expr(8) if is_real else node.emit(ops.dequantize(node.expr(3), weight_type), "weights")
        products = matrices(node, x, weights)
    row = node.data(6)
    if is_quantized:
        row = node.data(7).astype(np.float32) * (np.float32(in_type.scale) * np.array(weight_type.scales, np.float32))
    out_type = node.output_type(9, 10, in_type.storage)
    total = node.emit(relax.op.add(products, node.literal(row)), "sum")
    return node.typed(node.emit(ops.quantize(total, out_type)), out_type)


def real_matmul_add(node: Node) -> relax.Var:
    """Inputs: a and b as real values, a row, and the rounded row. `qdq` creates this operator from a MatMul and an Add
    before a QuantizeLinear.

    As for `qlinear_matmul_add`, ONNX Runtime rounds the row if it makes a Gemm of the two, and no Reshape is between
    the Gemm and the QuantizeLinear.
    """
    float32(node, 0, 1)
    is_matrix, is_activated = len(node.shape(0)) == 2, bool(node.attribute("is_activated", 0))
    is_rounded = is_matrix or (bool(node.attribute("has_known_shape", 0)) and not is_activated)
    products = matrices(node, node.expr(0), node.expr(1))
    return node.emit(relax.op.add(products, node.literal(node.data(3 if is_rounded else 2))))


def product(node: Node, *, transposed: bool, bias: int | None, output: int | None) -> relax.Var:
    """Returns the product of stored values by constant weights. An operand of one dimension is a row or a column of a
    matrix; the result does not have its additional axis.

    Args:
        output: the index of the input that contains the scale of the output; the next input is its zero point. Without
            that input, the output is float32.
    """
    rows, weights = node.shape(0), node.shape(3)
    are_matrix = len(weights) in (1, 2)
    node.require_supported(are_matrix, f"has weights {list(weights)}, which are not a matrix", node.name(3))
    depth, units = (weights[0], 1) if len(weights) == 1 else weights[::-1] if transposed else weights
    node.require_supported(len(rows) >= 1 and rows[-1] == depth, f"cannot multiply {list(rows)} by {list(weights)}")
    axis = None if len(weights) == 1 else 0 if transposed else 1
    in_type, weight_type = node.quantized(0, 1, 2), node.quantized(3, 4, 5, axis=axis)
    if weight_type.axis is not None:
        weight_type = replace(weight_type, axis=0)
    out_type = None
    if output is not None and node.has(output):
        out_type = node.output_type(output, output + 1, in_type.storage)
    weight = node.constant(3, None if transposed else rows_of_columns)
    constant_bias = None if bias is None else bias_of(node, bias, units)

    def to_output(sums: relax.Var, axis: int) -> relax.Expr:
        accumulator = accumulator_type(in_type, weight_type, axis)
        return ops.dequantize(sums, accumulator) if out_type is None else ops.requantize(sums, accumulator, out_type)

    x = node.expr(0) if len(rows) > 1 else node.emit(relax.op.reshape(node.expr(0), (1, depth)), "row")
    result = of_rows(node, x, weight, constant_bias, (in_type, weight_type), to_output)
    shape = (*rows[:-1], *((units,) if len(weights) == 2 else ()))
    if shape != shape_of(result):
        result = node.emit(relax.op.reshape(result, shape))
    return result if out_type is None else node.typed(result, out_type)


def of_rows(
    node: Node,
    x: relax.Expr,
    weight: relax.Constant,
    bias: relax.Constant | None,
    types: tuple[QuantizedType, QuantizedType],
    to_output: ToOutput,
) -> relax.Var:
    """Multiplies rows `[…, K]` by weights `[O, K]` and applies `to_output` to the sums, giving `[…, O]`.

    Rows of more than two dimensions become the pixels of an image, so that the samples keep an axis of their own.

    Args:
        to_output: maps the accumulators and the axis of their channels to the values of the result.
    """
    shape, (units, depth) = shape_of(x), shape_of(weight)
    if len(shape) == 2:
        return node.emit(to_output(node.emit(ops.dense(x, weight, bias, *types), "accumulate"), 1))
    pixels = shape[:3] if len(shape) == 4 else (shape[0], math.prod(shape[1:-1]), 1)
    image = x if pixels == shape[:-1] else node.emit(relax.op.reshape(x, (*pixels, depth)), "pixels")
    kernel = node.literal(weight.value.numpy().reshape(units, 1, 1, depth))
    sums = node.emit(ops.conv2d(image, kernel, bias, *types), "accumulate")
    values = node.emit(to_output(sums, 3), "taken")
    return values if image is x else node.emit(relax.op.reshape(values, (*shape[:-1], units)))


def rows_of_columns(weights: Array) -> Array:
    """Converts `[K, N]` to `[N, K]`, and `[K]` to `[1, K]`."""
    return np.ascontiguousarray(np.atleast_2d(weights.T))


def matmul(node: Node) -> relax.Var:
    """Inputs: A, B of float32."""
    float32(node, 0, 1)
    return matrices(node, node.expr(0), node.expr(1))


def matrices(node: Node, lhs: relax.Expr, rhs: relax.Expr) -> relax.Var:
    """Returns the product of real values. An operand of one dimension is a row or a column of a matrix; the result does
    not have its additional axis.
    """
    operands = [lhs, rhs]
    shapes = [shape_of(operand) for operand in operands]
    node.require(all(shapes), "multiplies scalars")
    if len(shapes[0]) == 1:
        operands[0] = node.emit(relax.op.reshape(operands[0], (1, *shapes[0])), "row")
    if len(shapes[1]) == 1:
        operands[1] = node.emit(relax.op.reshape(operands[1], (*shapes[1], 1)), "column")
    if min(map(len, shapes)) >= 2:
        return node.stored_product(node.emit(ops.real_matmul(*operands, operand_dtype=node.operand_dtype)))
    result = node.stored_product(node.emit(ops.real_matmul(*operands, operand_dtype=node.operand_dtype), "products"))
    whole = shape_of(result)
    rows, columns = whole[-2:-1] if len(shapes[0]) > 1 else (), whole[-1:] if len(shapes[1]) > 1 else ()
    return node.emit(relax.op.reshape(result, (*whole[:-2], *rows, *columns)))


def fused_matmul(node: Node) -> relax.Var:
    """Inputs: A, B of float32 (com.microsoft). Returns alpha times their product. The last two axes of each may be
    transposed.
    """
    float32(node, 0, 1)
    if node.attribute("transBatchA", 0) or node.attribute("transBatchB", 0):
        node.unsupported("transposes its batches, which cannot be compiled")
    node.require(min(len(node.shape(position)) for position in (0, 1)) >= 2, "has operands that are not matrices")
    operands = [_transposed_operand(node, position, name) for position, name in ((0, "transA"), (1, "transB"))]
    if (alpha := node.attribute("alpha", 1.0)) == 1.0:
        return node.emit(ops.real_matmul(*operands))
    result = node.emit(ops.real_matmul(*operands), "products")
    return node.emit(relax.op.multiply(result, relax.const(np.array(alpha, np.float32))))


def gemm(node: Node) -> relax.Var:
    """Returns alpha * A * B + beta * C of float32."""
    float32(node, *range(node.input_count))
    node.require(len(node.shape(0)) == len(node.shape(1)) == 2, "has operands that are not matrices")
    lhs, rhs = (_transposed_operand(node, position, name) for position, name in ((0, "transA"), (1, "transB")))
    alpha, beta = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    if alpha == beta == 1.0 and (not node.has(2) or node.shape(2) == shape_of(rhs)[1:]):
        bias = node.expr(2) if node.has(2) else None
        return node.stored_product(node.emit(ops.real_matmul(lhs, rhs, bias, operand_dtype=node.operand_dtype)))
    result = node.emit(ops.real_matmul(lhs, rhs, operand_dtype=node.operand_dtype), "products")
    if alpha != 1.0:
        result = node.emit(relax.op.multiply(result, relax.const(np.array(alpha, np.float32))), "scaled")
    if not node.has(2):
        return result
    bias = node.expr(2)
    if beta != 1.0:
        bias = node.emit(relax.op.multiply(bias, relax.const(np.array(beta, np.float32))), "bias")
    return node.emit(relax.op.add(result, bias))


def _transposed_operand(node: Node, index: int, name: str) -> relax.Expr:
    """Returns an operand with its last two axes swapped if the attribute `name` is set."""
    rank = len(node.shape(index))
    turned = (*range(rank - 2), rank - 1, rank - 2)
    x = node.expr(index)
    return node.emit(relax.op.permute_dims(x, turned), "turned") if node.attribute(name, 0) else x
