"""FULLY_CONNECTED."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from service.compiler.importers.tflite.node import Node, accumulators_of
from service.compiler.importers.tflite.operators.convolution import bias_of, requantized, weights_type
from service.compiler.qnn import ops

_DEFAULT_WEIGHTS_FORMAT = 0  # FullyConnectedOptionsWeightsFormat in schema.fbs


_INT64 = 4  # TensorType in schema.fbs


def _wants_64_bits(node: Node) -> bool:
    """Returns true if a 16-bit layer without a bias declares a 64-bit bias type. LiteRT's sums then have 64 bits
    instead of 32 (`EvalQuantized` in tflite/kernels/fully_connected.cc).
    """
    return not node.has_input(2) and node.input(0).dtype == "int16" and node.option("quantized_bias_type") == _INT64


def _sums_in_64_bits(units: int) -> relax.Constant:
    """Returns a bias of zeros. In the module, it marks a layer with 64-bit sums."""
    return relax.const(np.zeros(units, np.int64), "int64")


def fully_connected(node: Node) -> relax.Var:
    """Converts FULLY_CONNECTED with weights `[O, K]`. The input is read as `[-1, K]`, whatever its shape. The output is
    `[-1, O]`, or has the input's leading dimensions with `keep_num_dims` (`PrepareImpl` and `UpdateOutputSize` in
    tflite/kernels/fully_connected.cc).
    """
    if node.input(1).blocks is not None:
        node.unsupported("has weights in blocks for stored activations, for which LiteRT has no kernel", node.input(1))
    x, units = rows_of(node)
    in_type, weight_type = node.in_type(0), weights_type(node, channel_axis=0, asymmetric=True)
    bias = _sums_in_64_bits(units) if _wants_64_bits(node) else bias_of(node, units)
    call = ops.dense(x, node.expr(1), bias, in_type, weight_type, accum_dtype=accumulators_of(node))
    return restored(node, requantized(node, call, in_type, weight_type), units)


def rows_of(node: Node) -> tuple[relax.Expr, int]:
    """Returns the input as `[-1, K]`, and the number of units."""
    if node.int_option("weights_format") != _DEFAULT_WEIGHTS_FORMAT:
        node.unsupported("has weights in a shuffled format, which cannot be compiled")
    source, weights = node.input(0), node.input(1)
    node.require(len(weights.shape) == 2, f"has weights of shape {list(weights.shape)}, not two dimensions", weights)
    units, depth = weights.shape
    node.require(min(units, depth) > 0, f"has weights of shape {list(weights.shape)}, which are empty", weights)
    total = math.prod(source.shape)
    node.require(
        total % depth == 0, f"has an input of shape {list(source.shape)}, but its weights have rows of {depth}", source
    )
    if _keeps_dims(node):
        node.require(
            source.shape[-1:] == (depth,),
            f"has an input of shape {list(source.shape)}, but its weights have rows of {depth}",
            source,
        )
    rows = (total // depth, depth)
    return node.expr(0) if source.shape == rows else node.emit(relax.op.reshape(node.expr(0), rows), "rows"), units


def restored(node: Node, result: relax.Expr, units: int) -> relax.Expr:
    """Returns `[-1, O]` reshaped as the operator's options require."""
    shape = node.input(0).shape
    if not _keeps_dims(node) or len(shape) == 2:
        return result
    return node.emit(relax.op.reshape(result, (*shape[:-1], units)), "keep_num_dims")


def _keeps_dims(node: Node) -> bool:
    return bool(node.option("keep_num_dims"))
