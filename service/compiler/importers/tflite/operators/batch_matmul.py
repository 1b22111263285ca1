"""BATCH_MATMUL."""

from __future__ import annotations

import numpy as np
from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.qnn import ops
from service.compiler.qnn.types import QuantizedType


def batch_matmul(node: Node) -> relax.Expr:
    """Converts BATCH_MATMUL; either operand may be transposed (`Prepare` in tflite/kernels/batch_matmul.cc)."""
    quantization = node.input(1).quantization
    if quantization is not None and quantization.per_axis:
        node.unsupported("has a scale for each channel of its weights, which LiteRT's kernel reads as 0", node.input(1))
    lhs_type, rhs_type, out_type = node.in_type(0), node.in_type(1), node.out_type()
    node.require(lhs_type.storage == rhs_type.storage == out_type.storage, "mixes storage types")
    lhs, rhs = operands(node)
    dtype = "int64" if lhs_type.storage == "int16" else "int32"
    accumulated = node.emit(ops.matmul(lhs, rhs, lhs_type, rhs_type, accum_dtype=dtype), "accumulate")
    # LiteRT rounds the product of the scales to float32 (`GetQuantizedConvolutionMultipler`).
    scale = float(np.float32(lhs_type.scale) * np.float32(rhs_type.scale))
    return node.emit(ops.requantize(accumulated, QuantizedType(dtype, (scale,)), out_type))


def operands(node: Node) -> tuple[relax.Expr, relax.Expr]:
    """Returns both operands. An operand is transposed if the option for it is set."""
    return operand(node, 0, "adj_x"), operand(node, 1, "adj_y")


def operand(node: Node, index: int, option: str) -> relax.Expr:
    """Returns an input, transposed if `option` is set."""
    x, rank = node.expr(index), len(node.input(index).shape)
    node.require(rank >= 2, f"multiplies a tensor with {rank} dimensions", node.input(index))
    if not node.option(option):
        return x
    return node.emit(relax.op.permute_dims(x, [*range(rank - 2), rank - 1, rank - 2]), f"transposed_{index}")
