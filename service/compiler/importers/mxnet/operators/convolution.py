"""Convolutions: oneDNN's subgraph with everything that is fused into it, and the single operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from tvm import relax

from service.compiler.importers.channels_first import (
    CHANNELS,
    TO_CHANNELS_LAST,
    filters_channels_last,
    in_channels_last,
)
from service.compiler.importers.mxnet.attributes import Attributes
from service.compiler.importers.mxnet.node import Node, Tensor, Value, edges
from service.compiler.importers.mxnet.operators.weights import fold_batch_norm, quantize
from service.compiler.importers.mxnet.scales import (
    product_range,
    source_type,
    steps_per_unit,
    type_of,
    weights_type,
)
from service.compiler.qnn import ops
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

_MAX_PADDED_ELEMENTS = 1 << 31  # oneDNN's kernels index with 32-bit integers
_UNSIGNED = ("relu", "clip")  # activations whose outputs MXNet stores as uint8 (`IsOutputUInt8`)
_LARGEST_INT8 = 127
_ONE_BN, _ONE_SUM = 4, 1  # numbers of additional inputs: normalization, sum


@dataclass(frozen=True)
class _Geometry:
    """The kernel size, strides, padding, dilation and groups of a convolution, from its attributes."""

    strides: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    no_bias: bool

    @staticmethod
    def of(node: Node, attributes: Attributes, filters: Array) -> _Geometry:
        layout = attributes.text("layout", "NCHW")
        if layout not in ("NCHW", "None"):
            node.unsupported(f"has the layout {layout!a:.20}, not NCHW")
        kernel = attributes.pair("kernel", (0, 0))
        node.require(kernel == filters.shape[2:], f"has weights {list(filters.shape)} for a kernel of {list(kernel)}")
        number = attributes.integer("num_filter", 0)
        node.require(number == len(filters), f"has weights {list(filters.shape)}, which do not fit num_filter {number}")
        groups = attributes.integer("num_group", 1)
        node.require(number % groups == 0, f"has {number} filters, which cannot be divided into {groups} groups")
        return _Geometry(
            attributes.pair("stride", (1, 1)),
            attributes.pair("pad", (0, 0), least=0),
            attributes.pair("dilate", (1, 1)),
            groups,
            attributes.flag("no_bias"),
        )


def subgraph_convolution(node: Node) -> list[Value]:
    """`_sg_mkldnn_conv`: convolution, normalization, activation, sum, activation (`SgMKLDNNConvOperator` in
    src/operator/subgraph/mkldnn/mkldnn_conv.cc). The weights are float32 in the file.
    """
    flags = {name: _flag(node, name) for name in ("quantized", "with_bn", "with_act", "with_sum", "with_postsum_act")}
    if not flags["quantized"]:
        node.unsupported("is not quantized")
    if flags["with_act"] and flags["with_sum"]:
        node.unsupported("has an activation before its sum, which cannot be compiled")
    x, weights = node.tensor(0, "int8", "uint8"), node.array(1, "float32", 4)
    geometry = _Geometry.of(node, _part(node, "Convolution"), weights)
    position = 2 + (not geometry.no_bias)
    bias = None if geometry.no_bias else _bias(node, weights)
    if flags["with_bn"]:
        weights, bias = fold_batch_norm(node, weights, bias, position, _part(node, "BatchNorm"))
        position += _ONE_BN
    residual = node.tensor(position, "int8", "uint8") if flags["with_sum"] else None
    position += _ONE_SUM * flags["with_sum"]
    node.count(position + 2 + 2 * flags["with_sum"])
    data_steps = steps_per_unit(x.dtype, *node.range(position))
    found = node.calibrated()
    if found is None:
        node.unsupported("has no calibrated range, without which its sums stay int32", hint="calibrate the model")
    quantized = quantize(node, weights, bias, data_steps, geometry.groups)
    dtype = "uint8" if _activation(node, flags["with_act"] or flags["with_postsum_act"]) in _UNSIGNED else "int8"
    out_steps = steps_per_unit(dtype, *found)
    out_type = _in_place(type_of(dtype, out_steps), out_steps, residual)
    multipliers = (out_steps / data_steps / quantized.steps).astype(np.float32)
    totals = source_type("int32", multipliers, out_type, axis=CHANNELS)

    def body(image: relax.Var) -> relax.Expr:
        types = type_of(x.dtype, data_steps), weights_type(quantized.steps)
        sums = _convolve(node, image, x, quantized.weights, quantized.bias, types, geometry)
        if residual is None:
            return ops.requantize(sums, totals, out_type)
        other = node.emit(relax.op.permute_dims(residual.expr, TO_CHANNELS_LAST), "residual")
        steps = steps_per_unit(residual.dtype, *node.range(position + 2))
        added = source_type(residual.dtype, np.array([out_steps / steps]), out_type)
        return ops.requantize_add(sums, other, totals, added, out_type)

    made = _over_images(node, x, body)
    return [_as_declared(node, made, out_type, type_of(dtype, out_steps)), *edges(*found)]


def _as_declared(node: Node, made: Tensor, stored: QuantizedType, declared: QuantizedType) -> Tensor:
    """Returns an output as its readers interpret it. MXNet writes some outputs as uint8 but declares them as int8;
    their values from 128 on are then read as negative ones.
    """
    if stored.storage == declared.storage or declared.storage != "int8":
        return made
    values = np.arange(256, dtype=np.uint8).astype(np.int8).tolist()
    return node.result(node.emit(ops.table(made.expr, stored, declared, values), "as_declared"))


def quantized_convolution(node: Node) -> list[Value]:
    """`_contrib_quantized_conv`: int32 sums of products of uint8 and int8 (`MKLDNNQuantizedConvForward`)."""
    x, weights = node.tensor(0, "uint8"), node.array(1, "int8", 4)
    geometry = _Geometry.of(node, node.attributes, weights)
    if not geometry.no_bias:
        node.unsupported("has a bias, which MXNet adds to its sums without scaling it")
    node.count(6)
    data, filters = node.range(2), node.range(4)
    types = (type_of(x.dtype, steps_per_unit(x.dtype, *data)), type_of("int8", steps_per_unit("int8", *filters)))
    sums = _over_images(node, x, lambda image: _convolve(node, image, x, weights, None, types, geometry, bind=False))
    largest = product_range("int8", *data, *filters)  # MXNet uses int8's range, although the data is uint8
    return [sums, *edges(-largest, largest)]


def _in_place(out_type: QuantizedType, steps: np.float32, residual: Tensor | None) -> QuantizedType:
    """Returns the type in which a sum is stored. oneDNN writes a sum into the memory of its residual and in the
    residual's storage type, whatever the declared output is (observed: oneDNN logs `dst_s8` for a uint8 output). An
    int8 sum therefore cannot exceed 127.
    """
    if residual is None or residual.dtype == out_type.storage:
        return out_type
    if residual.dtype == "uint8":
        return type_of("uint8", steps)
    return replace(out_type, storage_max=_LARGEST_INT8)


def _over_images(node: Node, x: Tensor, body: Callable[[relax.Var], relax.Expr]) -> Tensor:
    if len(x.shape) != 4:
        node.unsupported(f"has an input of shape {list(x.shape)}, not [N, C, H, W]")
    return node.result(in_channels_last(node.emit, x.expr, body))


def _convolve(
    node: Node,
    image: relax.Var,
    x: Tensor,
    weights: Array,
    bias: Array | None,
    types: tuple[QuantizedType, QuantizedType],
    geometry: _Geometry,
    *,
    bind: bool = True,
) -> relax.Expr:
    (rows, columns), (batch, channels, height, width) = geometry.padding, x.shape
    if batch * channels * (height + 2 * rows) * (width + 2 * columns) > _MAX_PADDED_ELEMENTS:
        node.unsupported(f"pads its input by {rows} rows and {columns} columns, which is too large")
    call = ops.conv2d(
        image,
        relax.const(filters_channels_last(weights), "int8"),
        None if bias is None else relax.const(bias, "int32"),
        *types,
        strides=geometry.strides,
        padding=(rows, columns, rows, columns),
        dilation=geometry.dilation,
        groups=geometry.groups,
    )
    return node.emit(call, "accumulate") if bind else call


def _bias(node: Node, weights: Array) -> Array:
    bias = node.array(2, "float32", 1)
    node.require(len(bias) == len(weights), f"has a bias of {len(bias)} elements for {len(weights)} filters")
    return bias


def _flag(node: Node, name: str) -> bool:
    """Returns a flag. Older files name the flags `with_relu` and `with_postsum_relu`."""
    return node.attributes.flag(name) or node.attributes.flag(name.replace("_act", "_relu"))


def _part(node: Node, op: str) -> Attributes:
    """Returns the attributes of the only operator `op` in the subgraph."""
    found = [part for part in node.node.subgraph if part.op == op]
    node.require(len(found) == 1, f"has {len(found)} operators {op} in its subgraph, not 1")
    return found[0].attributes


def _activation(node: Node, expected: bool) -> str | None:
    """Returns the subgraph's activation. The upper bound of a clip needs no operator, because the calibrated range ends
    there.
    """
    found = [part for part in node.node.subgraph if part.op in ("Activation", "LeakyReLU", "clip")]
    node.require(len(found) == expected, f"has {len(found)} activations in its subgraph, not {int(expected)}")
    if not found:
        return None
    if found[0].op == "clip":
        return _checked_clip(node, found[0].attributes)
    kind = found[0].attributes.text("act_type", "")
    if found[0].op != "Activation" or kind != "relu":
        node.unsupported(f"has the fused activation {found[0].op} {kind!a:.20}; ReLU and ReLU6 can be compiled")
    return kind


def _checked_clip(node: Node, attributes: Attributes) -> str:
    low, high = attributes.real("a_min"), attributes.real("a_max")
    found = node.calibrated()
    if low != 0 or high is None or found is None or found[1] > high * (1 + 1e-6):
        calibrated = None if found is None else [float(end) for end in found]
        node.unsupported(f"clips to {low} to {high}, but its range was calibrated to {calibrated}")
    return "clip"
