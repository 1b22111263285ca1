"""Convolutions and fully connected layers: oneDNN's subgraphs with everything that is fused into them, and the single
operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.builder import movement, pooling
from service.compiler.importers.channels_first import (
    CHANNELS,
    TO_CHANNELS_LAST,
    filters_channels_last,
    in_channels_last,
)
from service.compiler.importers.mxnet.attributes import Attributes
from service.compiler.importers.mxnet.node import Node, Stored, Tensor, Value, edges
from service.compiler.importers.mxnet.operators import elementwise, images, real
from service.compiler.importers.mxnet.operators.elementwise import Operand
from service.compiler.importers.mxnet.operators.weights import Weights, fold_batch_norm, quantize, rescale, round_away
from service.compiler.importers.mxnet.scales import (
    Range,
    axis_type,
    product_range,
    source_type,
    steps_per_unit,
    type_of,
)
from service.compiler.importers.mxnet.symbol import SymbolNode
from service.compiler.qnn import ops
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

_ACTIVATIONS = ("Activation", "LeakyReLU", "abs", "clip", "exp", "sqrt", "square")  # operators that are fused
_LARGEST_INT8 = 127
_BN_INPUTS = 4
_UNITS = 1  # the axis of the output of a fully connected layer that counts units


def subgraph_convolution(node: Node) -> list[Value]:
    """`_sg_mkldnn_conv`: convolution, normalization, activation, sum, activation (`SgMKLDNNConvOperator` in
    src/operator/subgraph/mkldnn/mkldnn_conv.cc). The weights are float32 in the file.
    """
    quantized, with_bn, with_act, with_sum, with_late_act = (
        _flag(node, name) for name in ("quantized", "with_bn", "with_act", "with_sum", "with_postsum_act")
    )
    attributes, weights = _part(node, "Convolution"), node.array(1, "float32", 4)
    options = _options(node, attributes, weights)
    has_bias = not attributes.flag("no_bias")
    first, bias = 2 + has_bias, _bias(node, "float32", len(weights)) if has_bias else None
    if with_bn:
        weights, bias = fold_batch_norm(node, weights, bias, first, _part(node, "BatchNorm"))
    limits = first + _BN_INPUTS * with_bn + with_sum
    acts = _Activations.of(node, early=with_act, late=with_late_act)
    if not quantized:
        node.count(limits)
        made = acts.early_of(node, images.convolved(node, attributes, weights, bias))
        total = node.step("Add", made, node.real(limits - 1)) if with_sum else made
        return node.outputs_of(acts.late_of(node, total))
    node.count(limits + 2 + 2 * with_sum)
    x, residual = node.stored(0, limits), node.stored(limits - 1, limits + 2) if with_sum else None
    found = node.calibrated()
    if found is None:
        node.unsupported("has no calibrated range, without which its sums stay int32", hint="calibrate the model")
    stored = quantize(node, weights, bias, x.steps, options["groups"])
    dtype = "uint8" if acts.are_unsigned else "int8"
    steps = steps_per_unit(dtype, *found)
    declared = type_of(dtype, steps)
    out_type = _in_place(declared, steps, residual)
    totals = source_type("int32", (steps / x.steps / stored.steps).astype(np.float32), out_type, CHANNELS)

    def finish(sums: relax.Expr) -> relax.Expr:
        sums = node.emit(sums, "accumulate")
        if not acts.only_clamp(residual is not None):
            return _activated(node, acts, sums, totals, out_type, residual)
        if residual is None:
            return ops.requantize(sums, totals, out_type)
        other = node.emit(relax.op.permute_dims(residual.expr, TO_CHANNELS_LAST), "residual")
        added = source_type(residual.dtype, np.float32(steps / residual.steps), out_type)
        return ops.requantize_add(sums, other, totals, added, out_type)

    made = _convolve(node, x, stored, options, finish)
    if out_type.storage != declared.storage and declared.storage == "int8":
        # MXNet writes the output as uint8 but declares it as int8; its readers see values from 128 on as negative ones
        values = np.arange(256, dtype=np.uint8).astype(np.int8).tolist()
        return node.outputs(ops.table(made, out_type, declared, values), found, "as_declared")
    return [Tensor(made), *edges(found)]


def quantized_convolution(node: Node) -> list[Value]:
    """`_contrib_quantized_conv`: int32 sums of products of uint8 and int8 (`MKLDNNQuantizedConvForward`)."""
    node.tensor(0, "uint8")
    weights = node.array(1, "int8", 4)
    options = _options(node, node.attributes, weights)
    what = "has a bias, which MXNet adds to its sums without scaling it"
    node.require_supported(node.attributes.flag("no_bias"), what)
    node.count(6)
    x, filters = node.stored(0, 2), node.range(4)
    stored = Weights(weights, None, np.array([steps_per_unit("int8", *filters)]))
    made = _convolve(node, x, stored, options, lambda sums: sums)
    # MXNet uses int8's range, although the data is uint8
    return [Tensor(made), *edges(product_range("int8", x.range, filters))]


def _in_place(declared: QuantizedType, steps: np.float32, residual: Stored | None) -> QuantizedType:
    """Returns the type in which a sum is stored. oneDNN writes a sum into the memory of its residual and in the
    residual's storage type, whatever the declared output is (observed: oneDNN logs `dst_s8` for a uint8 output). An
    int8 sum therefore cannot exceed 127.
    """
    if residual is None or residual.dtype == declared.storage:
        return declared
    if residual.dtype == "uint8":
        return type_of("uint8", steps)
    return replace(declared, storage_max=_LARGEST_INT8)


def _options(node: Node, attributes: Attributes, filters: Array) -> dict[str, Any]:
    """Returns the arguments of a convolution of the dialect, from the attributes of one in the file."""
    node.choice("layout", "NCHW", "NCHW", "None", of=attributes)
    kernel = attributes.pair("kernel", (0, 0))
    node.require(kernel == filters.shape[2:], f"has weights {list(filters.shape)} for a kernel of {list(kernel)}")
    number, groups = attributes.integer("num_filter", 0), attributes.integer("num_group", 1)
    node.require(number == len(filters), f"has weights {list(filters.shape)}, which do not fit num_filter {number}")
    node.require(number % groups == 0, f"has {number} filters, which cannot be divided into {groups} groups")
    return {
        "strides": attributes.pair("stride", (1, 1)),
        "padding": attributes.pair("pad", (0, 0), least=0) * 2,
        "dilation": attributes.pair("dilate", (1, 1)),
        "groups": groups,
    }


def _convolve(
    node: Node, x: Stored, weights: Weights, options: dict[str, Any], finish: Callable[[relax.Expr], relax.Expr]
) -> relax.Var:
    """Returns the result of `finish` for the sums of a convolution."""
    real.check_image(node, x)
    pooling.check_padded(node, x.shape[0] * x.shape[1], (x.shape[2], x.shape[3]), options["padding"])
    filters, bias = relax.const(filters_channels_last(weights.data), "int8"), weights.bias_expr

    def body(image: relax.Var) -> relax.Expr:
        return finish(ops.conv2d(image, filters, bias, x.type, weights.type, **options))

    return in_channels_last(node.emit, x.expr, body)


def _bias(node: Node, dtype: str, filters: int) -> Array:
    bias = node.array(2, dtype, 1)
    node.require(len(bias) == filters, f"has a bias of {len(bias)} elements for {filters} filters")
    return bias


def _flag(node: Node, name: str) -> bool:
    """Returns a flag. Older files name the flags `with_relu` and `with_postsum_relu`."""
    return node.attributes.flag(name) or node.attributes.flag(name.replace("_act", "_relu"))


def _part(node: Node, op: str) -> Attributes:
    """Returns the attributes of the only operator `op` in the subgraph."""
    found = [part for part in node.node.subgraph if part.op == op]
    node.require(len(found) == 1, f"has {len(found)} operators {op} in its subgraph, not 1")
    return found[0].attributes


@dataclass(frozen=True)
class _Activations:
    """The activations that are fused into a layer.

    Attributes:
        early: the activation before the sum, if there is one.
        late: the activation after the sum.
    """

    early: SymbolNode | None
    late: SymbolNode | None

    @classmethod
    def of(cls, node: Node, *, early: bool, late: bool) -> _Activations:
        found = [part for part in node.node.subgraph if part.op in _ACTIVATIONS]
        expected = int(early) + int(late)
        node.require(len(found) == expected, f"has {len(found)} activations in its subgraph, not {expected}")
        return cls(found[0] if early else None, found[-1] if late else None)

    @property
    def are_unsigned(self) -> bool:
        """True if MXNet stores the output as uint8 (`IsOutputUInt8` in mkldnn_conv-inl.h)."""
        return any(_is_clamp(each) for each in (self.early, self.late))

    def only_clamp(self, with_sum: bool) -> bool:
        """Returns true if the bounds of the output's storage compute the activations. The upper bound of a clip needs
        no operator, because the calibrated range ends there.
        """
        return all(each is None or _is_clamp(each) for each in (self.early, self.late)) and not (
            with_sum and self.early is not None
        )

    def early_of(self, node: Node, x: Operand) -> Operand:
        return x if self.early is None else _applied(node, self.early, x)

    def late_of(self, node: Node, x: Operand) -> Operand:
        return x if self.late is None else _applied(node, self.late, x)


def _is_clamp(part: SymbolNode | None) -> bool:
    """Returns true for ReLU, and for a clip that begins at 0."""
    if part is None:
        return False
    if part.op == "clip":
        return part.attributes.real("a_min") == 0
    kind = part.attributes.text("act_type", "")
    is_leaky = part.op == "LeakyReLU" and kind == "leaky"
    return kind == "relu" or (is_leaky and part.attributes.real("slope") == 0)


def _applied(node: Node, part: SymbolNode, x: Operand) -> Operand:
    if part.op == "LeakyReLU":
        return elementwise.leaky(node, x, part.attributes)
    if part.op == "Activation":
        return elementwise.activation(node, x, part.attributes)
    return elementwise.FUNCTIONS[part.op](node, x, part.attributes)


def _activated(
    node: Node,
    acts: _Activations,
    sums: relax.Expr,
    totals: QuantizedType,
    out_type: QuantizedType,
    residual: Stored | None,
) -> relax.Expr:
    """Returns the output of a convolution as `[N, H, W, C]`. oneDNN applies the activations to real numbers of steps,
    before it rounds.
    """
    steps = replace(out_type, scales=(1.0,))
    ratios = np.array(totals.scales, np.float64) / out_type.scale
    x = node.emit(ops.dequantize(sums, axis_type("int32", ratios, CHANNELS)), "scaled")
    x = acts.early_of(node, x)
    if residual is not None:
        other = node.emit(relax.op.permute_dims(residual.expr, TO_CHANNELS_LAST), "residual")
        other = node.emit(relax.op.astype(other, "float32"), "residual")
        factor = relax.const(np.float32(np.float32(1 / out_type.scale) / residual.steps), "float32")
        x = node.emit(ops.real_fma(other, factor, x), "total")
    return ops.quantize(acts.late_of(node, x), steps)


@dataclass(frozen=True, eq=False)
class _Layer:
    """A fully connected layer.

    Attributes:
        sums: int32 `[N, O]`.
        weight_range: the range of int8 weights, or None if the weights were float32 in the file.
        leading: the sizes of the output before its last axis.
    """

    x: Stored
    sums: relax.Var
    steps: Array
    weight_range: Range | None
    leading: tuple[int, ...]

    def shaped(self, node: Node, values: list[Value]) -> list[Value]:
        """Returns the outputs. The first, which has a row for each row of the input, gets the input's leading axes."""
        rows, *rest = values
        if not isinstance(rows, Tensor) or len(self.leading) == 1:
            return values
        return [Tensor(movement.reshape(node, rows.expr, (*self.leading, rows.shape[-1]), "shaped")), *rest]

    def int32_output(self, node: Node) -> list[Value]:
        if self.weight_range is None:
            node.unsupported("has one scale per channel, but no calibrated range")
        limits = product_range(self.x.dtype, self.x.range, self.weight_range)
        return self.shaped(node, [Tensor(self.sums), *edges(limits)])


def subgraph_fully_connected(node: Node) -> list[Value]:
    """`_sg_mkldnn_fully_connected` (`SgMKLDNNFCOp::Forward` in src/operator/subgraph/mkldnn/mkldnn_fc.cc)."""
    act = _eltwise(node)
    if not node.attributes.flag("quantized"):
        inner = _part(node, "FullyConnected")
        bias = None if inner.flag("no_bias") else node.array(2, "float32", 1)
        made = images.connected(node, inner, node.array(1, "float32", 2), bias)
        return node.outputs_of(made if act is None else _applied(node, act, made))
    is_float, calibrated = node.attributes.flag("enable_float_output"), node.calibrated()
    what = "has an activation but no calibrated range"
    node.require_supported(is_float or act is None or calibrated is not None, what)
    layer = _layer(node, _part(node, "FullyConnected"), channelwise=node.attributes.flag("channel_wise_quantize"))
    units = (np.float32(1) / layer.x.steps / layer.steps).astype(np.float32)
    unit_type = axis_type("int32", units, _UNITS)
    if is_float:
        whole = ops.dequantize(layer.sums, unit_type)
        made = node.emit(whole, "scaled")
        return layer.shaped(node, node.outputs_of(made if act is None else _applied(node, act, made)))
    if calibrated is None:
        return layer.int32_output(node)
    dtype = "uint8" if act is not None and _stores_uint8(act) else "int8"
    steps = steps_per_unit(dtype, *calibrated)
    if act is not None and not _is_clamp(act):
        x = node.emit(ops.dequantize(layer.sums, unit_type), "scaled")
        made = ops.quantize(_applied(node, act, x), type_of(dtype, steps))
        return layer.shaped(node, node.outputs(made, calibrated))
    # oneDNN's post-operation for activations has its own scale
    multipliers = units * steps if act is not None else (steps / layer.x.steps / layer.steps).astype(np.float32)
    out_type = type_of(dtype, steps)
    totals = source_type("int32", multipliers, out_type, _UNITS)
    return layer.shaped(node, node.outputs(ops.requantize(layer.sums, totals, out_type), calibrated))


def quantized_fully_connected(node: Node) -> list[Value]:
    """`_contrib_quantized_fully_connected` (`MKLDNNQuantizedFullyConnectedForward`): int32 sums. The bias is truncated
    towards zero. (The bias of the subgraph form is rounded.)
    """
    return _layer(node, node.attributes, channelwise=False, to_integer=np.trunc).int32_output(node)


def _layer(
    node: Node, attributes: Attributes, *, channelwise: bool, to_integer: Callable[[Array], Array] = round_away
) -> _Layer:
    """Emits the sums of a layer. The node's inputs are data, weights and bias, followed by their ranges. Weights and
    bias have ranges only if they are int8.
    """
    has_bias = not attributes.flag("no_bias")
    operands = 2 + has_bias
    node.count(operands + 2 if channelwise else 3 * operands)
    dtype = "float32" if channelwise else "int8"
    x, weights, units = node.stored(0, operands), node.array(1, dtype, 2), attributes.integer("num_hidden", 0)
    node.require(units == len(weights), f"has weights {list(weights.shape)}, which do not fit num_hidden {units}")
    bias = _bias(node, dtype, units) if has_bias else None
    weight_range = None if channelwise else node.range(operands + 2)
    if weight_range is None:
        stored = quantize(node, weights, bias, x.steps)
    else:
        # If all elements of a bias are zero, its range is 0 to 0 and its number of steps per unit is infinite. MXNet
        # then multiplies the bias's stored values by 0, so such a bias is left out here.
        has_steps = has_bias and (node.bound(operands + 4) != 0 or node.bound(operands + 5) != 0)
        bias_range = node.range(operands + 4) if has_steps else None
        stored = rescale(weights, bias, bias_range, steps_per_unit("int8", *weight_range), x.steps, to_integer)
    node.require(len(x.shape) >= 1, "has a scalar as its input")
    leading = x.shape[:1] if attributes.flag("flatten", True) else x.shape[:-1]
    rows, flat = x.expr, (math.prod(leading), math.prod(x.shape) // max(1, math.prod(leading)))
    depth = weights.shape[1]
    node.require(flat[1] == depth, f"has the input {list(x.shape)}, which does not fit weights of {depth} columns")
    if x.shape != flat:
        rows = movement.reshape(node, rows, flat, "rows")
    call = ops.dense(rows, relax.const(stored.data, "int8"), stored.bias_expr, x.type, stored.type)
    return _Layer(x, node.emit(call, "accumulate"), stored.steps, weight_range, leading)


def _stores_uint8(part: SymbolNode) -> bool:
    """Returns true if the output of a fully connected layer with this activation is uint8 (`IsOutputUint8` in
    mkldnn_fc-inl.h).
    """
    kind = part.attributes.text("act_type", "leaky" if part.op == "LeakyReLU" else "")
    return part.op in ("abs", "clip", "exp", "sqrt", "square") or kind in ("relu", "sigmoid", "softrelu", "leaky")


def _eltwise(node: Node) -> SymbolNode | None:
    """Returns the activation that is fused into a fully connected layer."""
    if not (node.attributes.flag("with_eltwise") or node.attributes.flag("with_relu")):
        return None
    others = [part for part in node.node.subgraph if part.op in _ACTIVATIONS]
    node.require(len(others) == 1, f"has {len(others)} activations in its subgraph, not 1")
    return others[0]
