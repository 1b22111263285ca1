"""Finds layers in which FBGEMM may saturate a sum. Octet, and the formulas of FBGEMM's modes, compute such sums
exactly.
"""

from __future__ import annotations

import numpy as np
import tvm

from service.compiler.qnn import graph
from service.compiler.qnn.numerics.mode import Mode
from service.compiler.qnn.numerics.torch.aten import ByGroups, FbgemmRequantize
from service.compiler.qnn.operation import Operation, value_of
from service.core.builds.numerics import FBGEMM, TORCH_X86
from service.core.models.arrays import Array

_INT16 = np.iinfo(np.int16)
_CHANNELS = 8  # the number of channels must be a multiple of this
_MOST_OUTPUTS = 2  # outputs per channel
_KERNELS = (3, 5, 7)
_MOST_STRIDE = 2


def saturating_layers(module: tvm.IRModule, mode: Mode) -> int:
    """Returns the number of convolutions of `module` that may saturate in PyTorch for some values of their type.

    FBGEMM's depthwise kernels multiply with `vpmaddubsw`, which adds two products into 16 bits and saturates. The
    depthwise kernels compute the convolutions that `takeDepthWiseFastPath` in FBGEMM's FbgemmConv.cc accepts; every
    other convolution sums in 32 bits if the CPU has AVX512-VNNI. The limits here were observed on PyTorch 2.13.0.
    """
    if mode.name not in (FBGEMM, TORCH_X86):
        return 0
    found = (operation for _, _, operation in graph.operations(graph.main_of(module)) if operation is not None)
    return sum(
        operation.name == "qnn.requantize" and layer.name == "qnn.conv2d" and _may_saturate(layer)
        for operation in found
        if (layer := operation.producer) is not None and _is_fbgemm(mode, operation)
    )


def _is_fbgemm(mode: Mode, operation: Operation) -> bool:
    formula = mode.formulas.get(mode.key(operation))
    if isinstance(formula, ByGroups):
        formula = formula.chosen(operation)
    return isinstance(formula, FbgemmRequantize)


def _may_saturate(layer: Operation) -> bool:
    weights = value_of(layer.call.args[1])
    return weights is not None and _is_depthwise(layer, weights.shape) and _overflows(layer, weights)


def _is_depthwise(layer: Operation, weights: tuple[int, ...]) -> bool:
    """Returns true if FBGEMM computes the layer with its depthwise kernels.

    Args:
        weights: the shape of the weights, `[O, H, W, I / groups]`.
    """
    groups, strides = layer.integer("groups"), layer.ints("strides", 2, 1)
    outputs, height, width, inputs = weights
    return (
        inputs == 1
        and outputs <= _MOST_OUTPUTS * groups
        and groups % _CHANNELS == 0
        and height == width
        and height in _KERNELS
        and set(layer.ints("padding", 4, 0)) == {height // 2}
        and set(layer.ints("dilation", 2, 1)) == {1}
        and strides[0] == strides[1] <= _MOST_STRIDE
    )


def _overflows(layer: Operation, weights: Array) -> bool:
    """Returns true if the two most extreme weights of a channel, multiplied by the largest activations, exceed 16 bits.
    If these two products fit, those of every other pair of weights fit, too.
    """
    taps = np.sort(weights.reshape(len(weights), -1).astype(np.int64), axis=1)
    most = layer.per_tensor("in_type").max
    low, high = most * np.minimum(taps[:, :2], 0).sum(axis=1), most * np.maximum(taps[:, -2:], 0).sum(axis=1)
    return bool(low.min() < _INT16.min or high.max() > _INT16.max)
