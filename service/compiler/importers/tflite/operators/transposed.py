"""TRANSPOSE_CONV, and MediaPipe's custom operator Convolution2DTransposeBias."""

from __future__ import annotations

import math
import struct

import numpy as np
from tvm import relax

from service.compiler.importers.tflite.geometry import SAME, VALID, output_size, padding_2d
from service.compiler.importers.tflite.node import Node, accumulators_of
from service.compiler.importers.tflite.operators.convolution import (
    bias_of,
    bias_of_reals,
    requantized,
    weights_type,
)
from service.compiler.importers.tflite.operators.elementwise import clamped
from service.compiler.qnn import ops
from service.compiler.qnn.numerics.sums.transposed import Phases

_SHAPE, SOURCE, BIAS = 0, 2, 3  # indices of the inputs; that of the weights is 1
_PARAMETERS = struct.Struct("<iii")  # TfLiteTransposeConvParams: the padding scheme, and strides of columns and rows
_SAME_PADDING = 1
_MAX_ELEMENTS = (1 << 31) - 1
Pair = tuple[int, int]
Shape = tuple[int, int, int, int]


def transpose_conv(node: Node) -> relax.Var:
    """Converts TRANSPOSE_CONV. Inputs: the output's shape `[N, OH, OW, O]` as an int32 constant, weights `[O, KH, KW,
    C]`, per axis over 0, the input, and an optional bias. The padding is that of a convolution from the output's size
    to the input's size; such a convolution must exist (`Prepare` in tflite/kernels/transpose_conv.cc).
    """
    shape, strides, padding, output_padding = geometry(node)
    in_type, weight_type = node.in_type(SOURCE), weights_type(node, channel_axis=0, source=SOURCE)
    call = ops.conv2d_transpose(
        node.expr(SOURCE),
        node.constant(1),
        bias_of(node, shape[3], source=SOURCE, index=BIAS),
        in_type,
        weight_type,
        strides=strides,
        padding=padding,
        output_padding=output_padding,
        accum_dtype=accumulators_of(node, SOURCE),
    )
    return requantized(node, call, in_type, weight_type)


def real_transpose_conv(node: Node) -> relax.Expr:
    """Converts TRANSPOSE_CONV on float32."""
    shape, strides, padding, _ = geometry(node)
    return clamped(node, _in_phases(node, SOURCE, BIAS, shape, strides, padding[:2]), node.activation())


def transpose_conv_with_bias(node: Node) -> relax.Expr:
    """Converts the custom operator. Input, weights `[O, KH, KW, C]` and bias are float32. Sizes are computed as in the
    operator's `Prepare` (mediapipe/util/tflite/operations/transpose_conv_bias.cc), whose padding is not TensorFlow's.
    """
    source, weights, options = node.input(0), node.input(1), node.operator.custom_options
    for tensor in (source, weights):
        node.require(
            len(tensor.shape) == 4, f"has an operand of shape {list(tensor.shape)}, not four dimensions", tensor
        )
    node.require(
        source.shape[3] == weights.shape[3],
        f"has {source.shape[3]} channels, but its filters have {weights.shape[3]}",
        weights,
    )
    node.require(len(options) == _PARAMETERS.size, f"has options of {len(options)} bytes, not {_PARAMETERS.size}")
    scheme, stride_w, stride_h = _PARAMETERS.unpack(options)
    node.require(min(stride_h, stride_w) > 0, f"has the strides {stride_h} and {stride_w}, which must be positive")
    sizes, before = [], []
    for size, extent, stride in zip(source.shape[1:3], weights.shape[1:3], (stride_h, stride_w), strict=True):
        lost = max(0, extent - (size - 1) % stride - 1) if scheme == _SAME_PADDING else 0
        sizes.append(stride * (size - 1) + extent - lost)
        before.append(lost // 2)
    shape = (source.shape[0], sizes[0], sizes[1], weights.shape[0])
    if math.prod(shape) > _MAX_ELEMENTS:
        node.unsupported(f"computes {math.prod(shape)} elements; at most {_MAX_ELEMENTS} can be compiled")
    return _in_phases(node, 0, 2, shape, (stride_h, stride_w), (before[0], before[1]))


def _in_phases(node: Node, source: int, bias: int, shape: Shape, strides: Pair, before: Pair) -> relax.Expr:
    """Computes the result with one ordinary convolution that computes all phases."""
    weights = node.data(1)
    if weights.dtype != np.float32:
        node.unsupported(f"has weights of {weights.dtype}, not float32", node.input(1))
    (_, height, width, _), (_, rows, columns, _) = node.input(source).shape, weights.shape
    phases = Phases.around((height, width), (rows, columns), strides, before, (shape[1], shape[2]))
    node.reserve(weights.itemsize * math.prod((*phases.taps, phases.count, shape[3], weights.shape[3])))
    own = bias_of_reals(node, shape[3], bias, phases.count)
    kernel = relax.const(phases.kernel(weights))
    sums = node.emit(ops.real_conv2d(node.expr(source), kernel, own, padding=phases.padding), "phases")
    return node.emit(phases.interleaved(node.emit, sums), "interleaved")


def geometry(node: Node) -> tuple[Shape, Pair, tuple[int, int, int, int], Pair]:
    """Returns the output's shape, the strides, the padding of the full output, and the output's padding."""
    source, weights = node.input(SOURCE), node.input(1)
    shape = tuple(int(size) for size in node.integers(_SHAPE).reshape(-1))
    for tensor in (source, weights):
        node.require(
            len(tensor.shape) == 4, f"has an operand of shape {list(tensor.shape)}, not four dimensions", tensor
        )
    filters, *kernel, channels = weights.shape
    n, *sizes, source_channels = source.shape
    node.require(
        channels == source_channels, f"has {source_channels} channels, but its filters have {channels}", weights
    )
    node.require(
        len(shape) == 4 and min(shape) > 0 and (shape[0], shape[3]) == (n, filters),
        f"cannot compute shape {list(shape)} from {n} images and {filters} filters",
    )
    if math.prod(shape) > _MAX_ELEMENTS:
        node.unsupported(f"computes {math.prod(shape)} elements; at most {_MAX_ELEMENTS} can be compiled")

    strides = node.pair_option("stride_h", "stride_w")
    padding, output_padding = _padding(node, shape[1:3], tuple(sizes), tuple(kernel), strides)
    return (n, shape[1], shape[2], filters), strides, padding, output_padding


def _padding(
    node: Node, target: tuple[int, ...], sizes: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, int]
) -> tuple[tuple[int, int, int, int], tuple[int, int]]:
    """Returns the crop of the full output of `sizes` (top, left, bottom, right) and the padding. Together they give an
    output of the size `target`.
    """
    scheme = node.int_option("padding")
    node.require(scheme in (SAME, VALID), f"has the unknown padding scheme {scheme}")
    made = tuple(output_size(scheme, *axis, 1) for axis in zip(target, kernel, strides, strict=True))
    node.require(
        made == sizes,
        f"cannot compute sizes {list(target)} from {list(sizes)}: its convolution computes {list(made)} from them",
    )
    top, left, _, _ = padding_2d(scheme, target, kernel, strides, (1, 1))
    bottom, right = (
        (size - 1) * stride + extent - before - wanted
        for size, stride, extent, before, wanted in zip(sizes, strides, kernel, (top, left), target, strict=True)
    )
    return (top, left, max(bottom, 0), max(right, 0)), (max(-bottom, 0), max(-right, 0))
