"""Fully connected layers: oneDNN's subgraph, with float32 or int8 weights, and the single operator."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm import relax

from service.compiler.importers.mxnet.attributes import Attributes
from service.compiler.importers.mxnet.node import Node, Tensor, Value, edges
from service.compiler.importers.mxnet.operators.weights import Quantized, quantize
from service.compiler.importers.mxnet.scales import (
    max_abs,
    product_range,
    source_type,
    steps_per_unit,
    type_of,
    weights_type,
)
from service.compiler.qnn import ops
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

_MOST_BIAS = (1 << 31) // 2 - 1
_UNITS = 1  # the axis of the output that counts units


def _round_away(values: Array) -> Array:
    """Rounds as std::round does: halves away from zero."""
    return np.asarray(np.trunc(values + np.copysign(0.5, values.astype(np.float64))))


@dataclass(frozen=True, eq=False)
class _Layer:
    """A layer's operands.

    Attributes:
        rows: `[N, K]`.
        data: the range of the input.
        weights: the range of int8 weights, or None if the weights were float32 in the file.
    """

    rows: relax.Expr
    dtype: str
    data: tuple[np.float32, np.float32]
    data_steps: np.float32
    quantized: Quantized
    weights: tuple[np.float32, np.float32] | None

    def sums(self, node: Node) -> relax.Var:
        """Emits the layer's sums, int32 `[N, O]`."""
        bias = None if self.quantized.bias is None else relax.const(self.quantized.bias, "int32")
        types = type_of(self.dtype, self.data_steps), weights_type(self.quantized.steps)
        return node.emit(ops.dense(self.rows, relax.const(self.quantized.weights, "int8"), bias, *types), "accumulate")


def subgraph_fully_connected(node: Node) -> list[Value]:
    """`_sg_mkldnn_fully_connected` (`SgMKLDNNFCOp::Forward` in src/operator/subgraph/mkldnn/mkldnn_fc.cc)."""
    if not node.attributes.flag("quantized"):
        node.unsupported("is not quantized")
    found = [part for part in node.node.subgraph if part.op == "FullyConnected"]
    node.require(len(found) == 1, f"has {len(found)} operators FullyConnected in its subgraph, not 1")
    layer = _layer(node, found[0].attributes, channelwise=node.attributes.flag("channel_wise_quantize"))
    activation = _has_relu(node)
    if node.attributes.flag("enable_float_output"):
        return [_float_output(node, layer, activation)]
    calibrated = node.calibrated()
    if calibrated is None:
        if activation:
            node.unsupported("has an activation but no calibrated range")
        return _int32_output(node, layer)
    dtype = "uint8" if activation else "int8"
    out_steps = steps_per_unit(dtype, *calibrated)
    out_type = type_of(dtype, out_steps)
    if activation:  # oneDNN's post-operation for activations has its own scale
        multipliers = (np.float32(1) / layer.data_steps / layer.quantized.steps).astype(np.float32) * out_steps
    else:
        multipliers = (out_steps / layer.data_steps / layer.quantized.steps).astype(np.float32)
    totals = source_type("int32", multipliers, out_type, axis=_UNITS)
    return [node.result(node.emit(ops.requantize(layer.sums(node), totals, out_type))), *edges(*calibrated)]


def quantized_fully_connected(node: Node) -> list[Value]:
    """`_contrib_quantized_fully_connected` (`MKLDNNQuantizedFullyConnectedForward`): int32 sums. The bias is truncated
    towards zero. (The bias of the subgraph form is rounded.)
    """
    return _int32_output(node, _layer(node, node.attributes, channelwise=False, to_integer=np.trunc))


def _float_output(node: Node, layer: _Layer, activation: bool) -> Tensor:
    if activation:
        node.unsupported("has an activation and a float output, which cannot be compiled together")
    units = (np.float32(1) / layer.data_steps / layer.quantized.steps).astype(np.float32)
    scales = tuple(float(unit) for unit in units)
    totals = QuantizedType("int32", scales, axis=None if len(scales) == 1 else _UNITS)
    return node.result(node.emit(ops.dequantize(layer.sums(node), totals)))


def _int32_output(node: Node, layer: _Layer) -> list[Value]:
    if layer.weights is None:
        node.unsupported("has one scale per channel, but no calibrated range")
    largest = product_range(layer.dtype, *layer.data, *layer.weights)
    return [node.result(layer.sums(node)), *edges(-largest, largest)]


def _layer(
    node: Node, attributes: Attributes, *, channelwise: bool, to_integer: Callable[[Array], Array] = _round_away
) -> _Layer:
    """Returns the operands of a layer. The node's inputs are data, weights and bias, followed by their ranges. Weights
    and bias have ranges only if they are int8.
    """
    x = node.tensor(0, "int8", "uint8")
    has_bias = not attributes.flag("no_bias")
    operands = 2 + has_bias
    node.count(operands + 2 if channelwise else 3 * operands)
    stored = "float32" if channelwise else "int8"
    weights = node.array(1, stored, 2)
    bias = node.array(2, stored, 1) if has_bias else None
    units = attributes.integer("num_hidden", 0)
    node.require(units == len(weights), f"has weights {list(weights.shape)}, which do not fit num_hidden {units}")
    node.require(bias is None or len(bias) == units, f"has a bias whose length is not {units}")
    data = node.range(operands)
    data_steps = steps_per_unit(x.dtype, *data)
    rows = _rows(node, x, attributes.flag("flatten", True), weights.shape[1])
    if channelwise:
        quantized = quantize(node, weights, bias, data_steps)
        return _Layer(rows, x.dtype, data, data_steps, quantized, None)
    weight_range = node.range(operands + 2)
    steps = steps_per_unit("int8", *weight_range)
    # If all elements of a bias are zero, its range is 0 to 0 and its number of steps per unit is infinite. MXNet then
    # multiplies the bias's stored values by 0, so such a bias is left out here.
    has_steps = has_bias and not node.is_of_zeros(operands + 4)
    bias_range = node.range(operands + 4) if has_steps else None
    quantized = _rescaled(weights, bias, bias_range, steps, data_steps, to_integer)
    return _Layer(rows, x.dtype, data, data_steps, quantized, weight_range)


def _rescaled(
    weights: Array,
    bias: Array | None,
    bias_range: tuple[np.float32, np.float32] | None,
    steps: np.float32,
    data_steps: np.float32,
    to_integer: Callable[[Array], Array],
) -> Quantized:
    """Converts an int8 bias to int32 with the scale of the sums. If the result would overflow, the weights are scaled
    down.
    """
    if bias is None or bias_range is None:
        return Quantized(weights, None, np.array([steps]))
    bias_steps = steps_per_unit("int8", *bias_range)
    factor = np.float32(data_steps * steps / bias_steps)
    most = np.float32(np.float32(_MOST_BIAS) / max_abs(*bias_range) / bias_steps)
    if factor > most:
        shrink = np.float32(most * bias_steps / data_steps / steps)
        weights, steps, factor = _round_away(weights * shrink).astype(np.int8), np.float32(steps * shrink), most
    return Quantized(weights, to_integer(bias * factor).astype(np.int32), np.array([steps]))


def _rows(node: Node, x: Tensor, flatten: bool, depth: int) -> relax.Expr:
    if len(x.shape) != 2 and not flatten:
        node.unsupported(f"does not flatten its input {list(x.shape)}, which cannot be compiled")
    shape = (x.shape[0], math.prod(x.shape[1:]))
    node.require(shape[1] == depth, f"has the input {list(x.shape)}, which does not fit weights of {depth} columns")
    return x.expr if x.shape == shape else node.emit(relax.op.reshape(x.expr, shape), "rows")


def _has_relu(node: Node) -> bool:
    if not (node.attributes.flag("with_eltwise") or node.attributes.flag("with_relu")):
        return False
    others = [part for part in node.node.subgraph if part.op not in ("null", "FullyConnected")]
    if [(part.op, part.attributes.text("act_type", "")) for part in others] != [("Activation", "relu")]:
        fused = ", ".join(part.label for part in others) or "nothing"
        node.unsupported(f"has the fused activation {fused}; only ReLU can be compiled")
    return True
