"""QLinearMatMul and QGemm: matrices of activations times constant matrices."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.model import Array
from service.compiler.importers.onnx.node import Node
from service.compiler.importers.onnx.operators.convolution import bias_of
from service.compiler.qnn import ops
from service.compiler.qnn.types import accumulator_type


def qlinear_matmul(node: Node) -> relax.Var:
    """a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point: `[…, M, K]` times `[K, N]`."""
    return _product(node, transposed=False, bias=None)


def qgemm(node: Node) -> relax.Var:
    """A, a_scale, a_zero_point, B, b_scale, b_zero_point, C, y_scale, y_zero_point (com.microsoft).

    `[M, K]` times `[K, N]`, or `[N, K]` with `transB`, plus C, int32 at the accumulators' scale. Without y_scale the
    output is float32.
    """
    if node.attribute("transA", 0):
        node.unsupported("transposes its activations")
    if node.attribute("alpha", 1.0) != 1.0:
        node.unsupported("has an alpha other than 1")
    return _product(node, transposed=bool(node.attribute("transB", 0)), bias=6)


def _product(node: Node, *, transposed: bool, bias: int | None) -> relax.Var:
    rows, weights = node.shape(0), node.shape(3)
    node.require(len(weights) == 2, f"multiplies by weights of {list(weights)}, not a matrix", node.name(3))
    units, depth = weights if transposed else weights[::-1]
    node.require(bool(rows) and rows[-1] == depth, f"multiplies {list(rows)} by {list(weights)}")
    in_type, weight_type = node.quantized(0, 1, 2), node.quantized(3, 4, 5, axis=0 if transposed else 1)
    if weight_type.axis is not None:
        weight_type = type(weight_type)(weight_type.storage, weight_type.scales, weight_type.zero_points, axis=0)
    first = 6 if bias is None else 7  # of the output's scale and zero point
    out_type = node.output_type(first, first + 1, in_type.storage) if node.has(first) else None
    weight = node.constant(3, None if transposed else rows_of_columns)
    flat = (math.prod(rows[:-1]), depth)
    x = node.expr(0) if rows == flat else node.emit(relax.op.reshape(node.expr(0), flat), "rows")
    call = ops.dense(x, weight, None if bias is None else bias_of(node, bias, units), in_type, weight_type)
    accumulated, accumulator = node.emit(call, "accumulate"), accumulator_type(in_type, weight_type, axis=1)
    result = node.emit(
        ops.dequantize(accumulated, accumulator)
        if out_type is None
        else ops.requantize(accumulated, accumulator, out_type)
    )
    if rows != flat:
        result = node.emit(relax.op.reshape(result, (*rows[:-1], units)), "reshaped")
    return result if out_type is None else node.typed(result, out_type)


def rows_of_columns(weights: Array) -> Array:
    """`[K, N]` -> `[N, K]`."""
    return np.ascontiguousarray(weights.T)
