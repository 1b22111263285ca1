"""CONV_2D and DEPTHWISE_CONV_2D."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.builder import pooling
from service.compiler.importers.tflite.dilation import EXPLICIT_PADDING
from service.compiler.importers.tflite.geometry import SAME, VALID, padding_2d
from service.compiler.importers.tflite.model import Tensor
from service.compiler.importers.tflite.node import Node, accumulators_of
from service.compiler.qnn import ops
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.core.models.arrays import Array

_BIAS_TOLERANCE = 0.02
LEAST_BITS = 2
# Type of the activations -> type of the weights, if the two differ.
_STORAGE_OF_WEIGHTS = {"int16": "int8", "float32": "int8"}
_MAX_BIAS = 1 << 46  # LiteRT's 64-bit sums must fit 48 bits, including the sign


def convolution(*, depthwise: bool) -> Callable[[Node], relax.Var]:
    """Returns the converter of CONV_2D or DEPTHWISE_CONV_2D (`Prepare` in tflite/kernels/conv.cc)."""

    def convert(node: Node) -> relax.Var:
        filters, groups = filters_and_groups(node, depthwise=depthwise)
        in_type, weight_type = node.in_type(0), weights_type(node, channel_axis=3 if depthwise else 0)
        weight = node.constant(1, output_channels_first if depthwise else None)
        options = {**conv_options(node), "groups": groups, "accum_dtype": accumulators_of(node)}
        call = ops.conv2d(node.expr(0), weight, bias_of(node, filters), in_type, weight_type, **options)
        return requantized(node, call, in_type, weight_type)

    return convert


def filters_and_groups(node: Node, *, depthwise: bool) -> tuple[int, int]:
    """Counts the filters and the groups, from the shapes of image and weights.

    CONV_2D has weights `[O, KH, KW, C / groups]`, per axis over 0. DEPTHWISE_CONV_2D has weights `[1, KH, KW, C * M]`,
    per axis over 3. Output channel c * M + m is input channel c filtered with weights[…, c * M + m] (`DepthwiseConv` in
    tflite/kernels/internal/reference/depthwiseconv_uint8.h). This is a convolution in C groups with weights `[C * M,
    KH, KW, 1]`. M is computed from the shapes, as in the kernel (`ComputeDepthMultiplier` in
    tflite/kernels/depthwise_conv.cc).
    """
    channels, weights = node.image()[3], node.input(1)
    shape = weights.shape
    if weights.packed_bits == LEAST_BITS:
        node.unsupported("has weights of 2 bits, which LiteRT's kernel reads as 8 bits", weights)
    node.require(len(shape) == 4, f"has weights of shape {list(shape)}, not four dimensions", weights)
    if depthwise:
        node.require(shape[0] == 1, f"has weights of shape {list(shape)}, not [1, height, width, …]", weights)
        node.require(shape[3] % channels == 0, f"has {shape[3]} filters for {channels} channels", weights)
        return shape[3], channels
    fits = shape[3] > 0 and channels % shape[3] == 0
    node.require(fits, f"has {channels} channels, but its filters have {shape[3]}", weights)
    groups = channels // shape[3]
    node.require(shape[0] % groups == 0, f"has {shape[0]} filters in {groups} groups", weights)
    return shape[0], groups


def conv_options(node: Node) -> dict[str, Any]:
    """Returns the strides, the padding and the dilation of a convolution."""
    strides, dilation = (
        node.pair_option("stride_h", "stride_w"),
        node.pair_option("dilation_h_factor", "dilation_w_factor"),
    )
    padding = window_padding(node, node.input(1).shape[1:3], strides, dilation)
    return {"strides": strides, "padding": padding, "dilation": dilation}


def output_channels_first(weights: Array) -> Array:
    """Transposes `[1, KH, KW, O]` to `[O, KH, KW, 1]`."""
    return np.transpose(weights, (3, 1, 2, 0))


def weights_type(node: Node, channel_axis: int, *, source: int = 0, asymmetric: bool = False) -> QuantizedType:
    """Returns the type of weights. In the file, their output channels are on `channel_axis`; in the module, they come
    first. `source` is the index of the input with the activations. With `asymmetric`, int8 weights with one scale may
    have a zero point.

    int8 weights must be symmetric, and uint8 weights per-tensor (`Prepare` in tflite/kernels/conv.cc and the TFLite
    8-bit quantization specification). 16-bit and real activations have int8 weights.
    """
    tensor, activations = node.input(1), node.input(source).dtype
    quantization, storage = tensor.quantization, _STORAGE_OF_WEIGHTS.get(activations, activations)
    node.require(tensor.dtype == storage, f"has {tensor.dtype} weights for an input of {activations}", tensor)
    if quantization is None:
        node.malformed("has weights without quantization", tensor)
    if quantization.per_axis:
        node.require(storage == "int8", "has uint8 weights quantized per axis", tensor)
        node.require(
            quantization.axis == channel_axis,
            f"has weights quantized along dimension {quantization.axis}, not {channel_axis}",
            tensor,
        )
    may_shift = asymmetric and activations == "int8" and not quantization.per_axis
    if storage == "int8" and any(quantization.zero_points) and not may_shift:
        node.unsupported("has int8 weights with a zero point other than 0", tensor)
    node.check_quantization(tensor, quantization)
    axis = 0 if quantization.per_axis else None
    return QuantizedType(storage, quantization.scales, quantization.zero_points, axis=axis)


def bias_of(node: Node, filters: int, *, source: int = 0, index: int = 2) -> relax.Constant | None:
    """Returns the bias: input `index`, one value for each filter at the scale of the accumulators. `source` is the
    index of the input with the activations.

    If one scale applies to the whole tensor, LiteRT refuses a bias whose own scale differs by more than 2 % of an
    output step (`GetQuantizedConvolutionMultipler` in tflite/kernels/kernel_util.cc). LiteRT does not check a bias with
    a scale for each channel.
    """
    if not node.has_input(index):
        return None
    bias = node.input(index)
    dtype = accumulators_of(node, source)
    if bias.dtype != dtype and node.input(source).dtype == "int16":
        node.unsupported(f"has a bias of {bias.dtype}, but LiteRT reads it as {dtype} (quantized_bias_type)", bias)
    if bias.dtype != dtype:
        node.unsupported(f"has a bias of {bias.dtype}, not {dtype}", bias)
    node.require(
        math.prod(bias.shape) == filters, f"has a bias of shape {list(bias.shape)} for {filters} filters", bias
    )
    _check_bias_scale(node, bias, source)
    largest = int(np.abs(node.data(index).astype(np.float64)).max())
    node.require(largest <= _MAX_BIAS, f"has a bias of {largest}, which is more than its kernel can add", bias)
    return node.constant(index, flat)


def bias_of_reals(node: Node, filters: int, index: int = 2, times: int = 1) -> relax.Expr | None:
    """Returns the bias of a layer on real values: float32, repeated `times` times."""
    if not node.has_input(index):
        return None
    bias = node.input(index)
    fits = bias.dtype == "float32" and math.prod(bias.shape) == filters
    node.require(fits, f"has a bias of {bias.dtype} {list(bias.shape)} for {filters} filters", bias)
    node.reserve(4 * filters * times)
    return relax.const(np.tile(flat(node.data(index)), times))


def flat(values: Array) -> Array:
    return values.reshape(-1)


def _check_bias_scale(node: Node, bias: Tensor, source: int) -> None:
    if bias.quantization is None:
        return
    node.require(not any(bias.quantization.zero_points), "has a bias with a zero point other than 0", bias)
    weights = node.input(1).quantization
    if bias.quantization.per_axis or weights is None or weights.per_axis:
        return
    expected = node.in_type(source).scale * weights.scales[0]
    off = abs(bias.quantization.scales[0] - expected) / node.out_type().scale
    node.require(off <= _BIAS_TOLERANCE, f"has a bias with scale {bias.quantization.scales[0]}, not {expected}", bias)


def requantized(node: Node, call: relax.Call, in_type: QuantizedType, weight_type: QuantizedType) -> relax.Var:
    """Converts the accumulators of `call` to the output's type, whose storage type must equal that of the
    activations.
    """
    accumulated, out_type = node.emit(call, "accumulate"), node.out_type(node.activation())
    node.require(in_type.storage == out_type.storage, f"reads {in_type.storage}, but writes {out_type.storage}")
    dtype, axis = str(accumulated.ty.dtype), len(accumulated.ty.shape) - 1
    return node.emit(ops.requantize(accumulated, accumulator_type(in_type, weight_type, axis, dtype), out_type))


def window_padding(
    node: Node, window: tuple[int, ...], strides: tuple[int, int], dilation: tuple[int, int]
) -> tuple[int, int, int, int]:
    """Returns the padding of the node's input, `[N, H, W, C]`: top, left, bottom, right."""
    batch, height, width, channels = node.input(0).shape
    explicit = (node.operator.options or {}).get(EXPLICIT_PADDING)
    if isinstance(explicit, tuple):
        top, left, bottom, right = explicit
    else:
        scheme = node.int_option("padding")
        node.require(scheme in (SAME, VALID), f"has the unknown padding scheme {scheme}")
        top, left, bottom, right = padding_2d(scheme, (height, width), window, strides, dilation)
    pooling.check_padded(node, batch * channels, (height, width), (top, left, bottom, right))
    return top, left, bottom, right
