"""FULLY_CONNECTED."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.convolution import accumulators_of, bias_of, requantized, weights_type
from service.compiler.qnn import ops

_DEFAULT_WEIGHTS_FORMAT = 0  # FullyConnectedOptionsWeightsFormat in schema.fbs


_INT64 = 4  # TensorType in schema.fbs


def _wants_64_bits(node: Node) -> bool:
    """Whether a 16-bit layer without a bias says that it would be one of 64 bits: LiteRT sums in as many, and takes
    32 if nothing is said (`EvalQuantized` in tflite/kernels/fully_connected.cc)."""
    return not node.has_input(2) and node.input(0).dtype == "int16" and node.option("quantized_bias_type") == _INT64


def _sums_in_64_bits(units: int) -> relax.Constant:
    """A bias of zeros, which is what tells the two apart in the module."""
    return relax.const(np.zeros(units, np.int64), "int64")


def fully_connected(node: Node) -> relax.Var:
    """Weights `[O, K]`; the input is taken as `[-1, K]`, whatever its shape, and the output is `[-1, O]`, or has the
    input's leading dimensions with `keep_num_dims` (`PrepareImpl` and `UpdateOutputSize` in
    tflite/kernels/fully_connected.cc)."""
    if node.int_option("weights_format") != _DEFAULT_WEIGHTS_FORMAT:
        node.unsupported("has weights in a shuffled format")
    source, weights = node.input(0), node.input(1)
    node.require(len(weights.shape) == 2, f"has weights of {list(weights.shape)}, not two dimensions", weights)
    units, depth = weights.shape
    total = math.prod(source.shape)
    node.require(total % depth == 0, f"has an input of {list(source.shape)} for rows of {depth}", source)
    keep_dims = bool(node.option("keep_num_dims"))
    if keep_dims:
        node.require(source.shape[-1:] == (depth,), f"has an input of {list(source.shape)} for rows of {depth}", source)

    rows = (total // depth, depth)
    x = node.expr(0) if source.shape == rows else node.emit(relax.op.reshape(node.expr(0), rows), "rows")
    in_type, weight_type = node.in_type(0), weights_type(node, channel_axis=0)
    bias = _sums_in_64_bits(units) if _wants_64_bits(node) else bias_of(node, units)
    call = ops.dense(x, node.constant(1), bias, in_type, weight_type, accum_dtype=accumulators_of(node))
    result = requantized(node, call, in_type, weight_type)
    if keep_dims and len(source.shape) != 2:
        result = node.emit(relax.op.reshape(result, (*source.shape[:-1], units)), "keep_num_dims")
    return result
