"""Prepares the operands of the kernel for 16-bit activations (`int16`) from a group of operators."""

from __future__ import annotations

import numpy as np

from service.compiler.kernels.arithmetic.numerics import expressed
from service.compiler.kernels.group import Group, PlainKernel, image_shape, shape_of
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layer import Window
from service.compiler.kernels.layout import Halo
from service.compiler.kernels.simd.convolution import int16
from service.compiler.kernels.vector.isa import Isa, worth_sharing
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.expressed import Rescales
from service.compiler.qnn.operation import value_of
from service.core.models.arrays import Array

_MOST_GROUPS = 32  # with more groups, most weights would be zero, and TVM's generated code is faster


def plain_kernel(isa: Isa, mode: Mode, group: Group) -> PlainKernel:
    """Returns the kernel for a requantized convolution or dense layer with 16-bit activations and 8-bit weights.

    Raises:
        Declined: no 16-bit kernel computes the group.
    """
    core = group.core
    if core.name not in ("qnn.conv2d", "qnn.dense") or str(group.output.ty.dtype) != "int16":
        raise Declined(f"no kernel computes this operator on {group.inputs[0].ty.dtype}")
    if group.requantize is None or group.addition is not None or str(core.attr("accum_dtype")) != "int64":
        raise Declined("it does not consist of 64-bit sums and a requantization")
    weights, *bias = (value_of(arg) for arg in core.call.args[1:])
    if weights is None or any(value is None for value in bias):
        raise Declined("its weights are not constant")
    if weights.dtype != np.int8 or any(core.quantized("weight_type").zero_points):
        raise Declined("its weights are not 8-bit integers with a zero point of 0")
    groups = core.integer("groups") if core.name == "qnn.conv2d" else 1
    if groups > _MOST_GROUPS or (groups > 1 and weights.shape[-1] == 1):
        raise Declined(f"its {groups} groups are so small that almost all weights of a 16-bit kernel would be zero")
    summand = bias[0] if bias and bias[0] is not None else np.zeros(len(weights), np.int64)
    rescaling = expressed(mode, group.requantize, Rescales).rescaling(group.requantize).repeated(len(weights))
    bounds = group.out_type.min, group.out_type.max
    weights = _ungrouped(weights if weights.ndim == 4 else weights[:, None, None, :], groups)
    halo, words = _geometry(group, weights.shape[1:3])
    tile = int16.choose(isa, words)
    parallel = worth_sharing(isa, int16.cycles(isa, words, tile))
    return PlainKernel(
        int16.layer(isa, words, weights, summand, rescaling, bounds, tile, parallel=parallel),
        halo,
        core.per_tensor("in_type").zero_point,
    )


def _ungrouped(weights: Array, groups: int) -> Array:
    """Converts `[O, KH, KW, C / groups]` to `[O, KH, KW, C]`, with zeros for the channels of other groups."""
    if groups == 1:
        return weights
    filters, kernel_h, kernel_w, channels = weights.shape
    filled = np.zeros((groups, filters // groups, kernel_h, kernel_w, groups, channels), weights.dtype)
    for position, own in enumerate(np.split(weights, groups)):
        filled[position, :, :, :, position] = own
    return filled.reshape(filters, kernel_h, kernel_w, groups * channels)


def _geometry(group: Group, kernel: tuple[int, int]) -> tuple[Halo, int16.Words]:
    """Returns the padding to add to the source, and the geometry of the layer on the padded source."""
    core, source, made = group.core, image_shape(shape_of(group.inputs[0])), image_shape(shape_of(group.output))
    assert source is not None
    assert made is not None
    if core.name == "qnn.dense":
        return Halo(), int16.Words(source, made, Window((1, 1)))
    top, left, bottom, right = core.ints("padding", 4, 0)
    (stride_h, stride_w), (step_h, step_w) = core.ints("strides", 2, 1), core.ints("dilation", 2, 1)
    n, height, width, channels = source
    source = (n, height + top + bottom, width + left + right, channels)
    if kernel == (1, 1) and (stride_h, stride_w) == (1, 1):  # all pixels are treated as one row
        pixels = n * source[1] * source[2]
        return Halo(top, left, bottom, right), int16.Words(
            (1, 1, pixels, channels), (1, 1, pixels, made[3]), Window((1, 1))
        )
    window = Window(kernel, (stride_h, stride_w), (step_h, step_w))
    return Halo(top, left, bottom, right), int16.Words(source, made, window)
