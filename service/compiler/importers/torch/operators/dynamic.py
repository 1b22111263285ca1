"""Linear layers whose activations are quantized at run time (`torch.ao.quantization.quantize_dynamic`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.builder.dynamic import STORED, Ranges
from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.operators.accumulating import packed_layer, type_of_weights
from service.compiler.importers.torch.packed import Packed
from service.compiler.importers.torch.values import Value
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.ops.dynamic import DENSE, FACTOR, SCALE, ZERO_POINT


def _linear_dynamic(node: Node, X: Any, W_prepack: Any, reduce_range: Any = False) -> Value:
    layer, reduced = packed_layer(node, W_prepack, rank=2), node.flag(reduce_range)
    x = node.real_tensor(X).expr
    shape, (units, depth) = shape_of(x), layer.weight.data.shape
    node.require(
        len(shape) >= 2 and shape[-1] == depth, f"cannot multiply shape {list(shape)} by weights {[units, depth]}"
    )
    if shape[0] == 1:
        return node.value(scaled(node, x, layer, reduced=reduced), None)
    sample = node.emit(relax.op.reshape(x, (1, *shape)), "sample")  # the whole sample has one range
    return node.value(
        relax.op.reshape(node.emit(scaled(node, sample, layer, reduced=reduced)), (*shape[:-1], units)), None
    )


def _linear_relu_dynamic(node: Node, X: Any, W_prepack: Any, reduce_range: Any = False) -> Value:
    sums = _linear_dynamic(node, X, W_prepack, reduce_range)
    return node.value(relax.op.nn.relu(sums.expr), None)


def scaled(node: Node, x: relax.Expr, layer: Packed, *, reduced: bool) -> relax.Expr:
    """Returns the rows `[1, …, K]` of a sample times the transposed weights, `[1, …, O]`. All rows have one range."""
    ranges = Ranges(node, x, list(range(1, len(shape_of(x)))), DENSE, reduced=reduced)
    for parameter in (SCALE, ZERO_POINT, FACTOR):
        ranges.parameter(parameter)
    sums = _sums(node, ranges.quantized(), layer)
    bias = None if layer.bias is None else relax.const(np.ascontiguousarray(layer.bias))
    return ranges.scaled(sums, layer.weight.data, type_of_weights(node, layer), bias)


def _sums(node: Node, stored: relax.Var, layer: Packed) -> relax.Expr:
    """Returns the sums of products of stored values. Rows with more than two dimensions become the pixels of an image,
    so that the samples keep an axis of their own.
    """
    shape, (units, depth) = shape_of(stored), layer.weight.data.shape
    weights = np.ascontiguousarray(layer.weight.data)
    if len(shape) == 2:
        return node.emit(ops.dense(stored, relax.const(weights), None, STORED, STORED), "sums")
    pixels = (shape[0], math.prod(shape[1:-1]), 1)
    image = node.emit(relax.op.reshape(stored, (*pixels, depth)), "pixels")
    kernel = relax.const(weights.reshape(units, 1, 1, depth))
    sums = node.emit(ops.conv2d(image, kernel, None, STORED, STORED), "pixel_sums")
    return node.emit(relax.op.reshape(sums, (*shape[:-1], units)), "sums")


def _linear_fp16(node: Node, X: Any, W_prepack: Any) -> Value:
    """Multiplies real values by weights that were rounded to float16, in float32 (FBGEMM's `cblas_gemm_compute`)."""
    if not isinstance(W_prepack, Packed) or W_prepack.weight.quantization is not None:
        node.unsupported("has no packed weights of float16")
    columns = relax.const(np.ascontiguousarray(W_prepack.weight.data.T))
    bias = None if W_prepack.bias is None else relax.const(np.ascontiguousarray(W_prepack.bias))
    return node.value(ops.real_matmul(node.real_tensor(X).expr, columns, bias), None)


def _linear_relu_fp16(node: Node, X: Any, W_prepack: Any) -> Value:
    return node.value(relax.op.nn.relu(_linear_fp16(node, X, W_prepack).expr), None)


RULES = {
    "quantized::linear_dynamic_fp16": _linear_fp16,
    "quantized::linear_relu_dynamic_fp16": _linear_relu_fp16,
    "quantized::linear_dynamic": _linear_dynamic,
    "quantized::linear_relu_dynamic": _linear_relu_dynamic,
}
