"""TRANSPOSE_CONV."""

from __future__ import annotations

import math

from tvm import relax

from service.compiler.importers.tflite.geometry import SAME, VALID, output_size, padding_2d
from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.convolution import accumulators_of, bias_of, requantized, weights_type
from service.compiler.qnn import ops

_SHAPE, _SOURCE, _BIAS = 0, 2, 3  # places of the inputs; weights are at 1
_MAX_ELEMENTS = (1 << 31) - 1


def transpose_conv(node: Node) -> relax.Var:
    """Output shape `[N, OH, OW, O]` as an int32 constant, weights `[O, KH, KW, C]`, per axis over 0, the input and
    maybe a bias. The padding is that of the convolution which makes the input's size of the output's, and there has to
    be one (`Prepare` in tflite/kernels/transpose_conv.cc)."""
    source, weights = node.input(_SOURCE), node.input(1)
    shape = tuple(int(size) for size in node.integers(_SHAPE).reshape(-1))
    for tensor in (source, weights):
        node.require(len(tensor.shape) == 4, f"has an operand of {list(tensor.shape)}, not four dimensions", tensor)
    filters, *kernel, channels = weights.shape
    n, *sizes, source_channels = source.shape
    node.require(channels == source_channels, f"has {source_channels} channels for filters of {channels}", weights)
    node.require(
        len(shape) == 4 and min(shape) > 0 and (shape[0], shape[3]) == (n, filters),
        f"makes {list(shape)} of {n} images by {filters} filters",
    )
    if math.prod(shape) > _MAX_ELEMENTS:
        node.unsupported(f"makes {math.prod(shape)} elements")

    strides = (node.int_option("stride_h", least=1), node.int_option("stride_w", least=1))
    padding, output_padding = _padding(node, shape[1:3], tuple(sizes), tuple(kernel), strides)
    in_type, weight_type = node.in_type(_SOURCE), weights_type(node, channel_axis=0, source=_SOURCE)
    call = ops.conv2d_transpose(
        node.expr(_SOURCE),
        node.constant(1),
        bias_of(node, filters, source=_SOURCE, place=_BIAS),
        in_type,
        weight_type,
        strides=strides,
        padding=padding,
        output_padding=output_padding,
        accum_dtype=accumulators_of(node, _SOURCE),
    )
    return requantized(node, call, in_type, weight_type)


def _padding(
    node: Node, target: tuple[int, ...], sizes: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, int]
) -> tuple[tuple[int, int, int, int], tuple[int, int]]:
    """The crop of the full output of `sizes` (top, left, bottom, right) and the padding that give `target`."""
    scheme = node.int_option("padding")
    node.require(scheme in (SAME, VALID), f"has the padding scheme {scheme}")
    made = tuple(output_size(scheme, *axis, 1) for axis in zip(target, kernel, strides, strict=True))
    node.require(made == sizes, f"makes {list(target)} of {list(sizes)}, but a convolution makes {list(made)} of that")
    top, left, _, _ = padding_2d(scheme, target, kernel, strides, (1, 1))
    bottom, right = (
        (size - 1) * stride + extent - before - wanted
        for size, stride, extent, before, wanted in zip(sizes, strides, kernel, (top, left), target, strict=True)
    )
    return (top, left, max(bottom, 0), max(right, 0)), (max(-bottom, 0), max(-right, 0))
