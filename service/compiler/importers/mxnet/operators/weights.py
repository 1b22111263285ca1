"""Weights that the file has in float32, quantized as MXNet does when it first runs a layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.compiler.importers.mxnet.attributes import Attributes
from service.compiler.importers.mxnet.node import Node
from service.compiler.importers.mxnet.scales import QUANTIZED_RANGES, Array

_LARGEST_BIAS = np.float32((1 << 31) - 1) / 2  # of either sign: oneDNN mishandles INT_MAX


@dataclass(frozen=True, eq=False)
class Quantized:
    """int8 weights, their int32 bias, and the steps in a unit of each filter, or of all."""

    weights: Array
    bias: Array | None
    steps: Array


def fold_batch_norm(
    node: Node, weights: Array, bias: Array | None, first: int, norm: Attributes
) -> tuple[Array, Array]:
    """Weights and bias with a normalization of their outputs in them (`UpdateConvWeightBias` in mkldnn_conv.cc).

    Args:
        first: place of the normalization's gamma among the inputs; beta, mean and variance follow.
        norm: what it says of itself.
    """
    given = norm.real("eps")
    eps = 1e-3 if given is None else given
    gamma, beta, mean, variance = (node.array(first + place, "float32", 1) for place in range(4))
    for array in (gamma, beta, mean, variance):
        node.require(len(array) == len(weights), f"normalizes {len(array)} channels of {len(weights)}")
    node.require(bool((variance.astype(np.float64) + eps > 0).all()), "has a variance that is not positive")
    numerator = np.ones_like(gamma) if norm.flag("fix_gamma", True) else gamma
    alpha = (numerator / np.sqrt(variance.astype(np.float64) + eps)).astype(np.float32)
    shift = -alpha * mean if bias is None else alpha * (bias - mean)
    return weights * alpha.reshape(-1, *[1] * (weights.ndim - 1)), beta + shift


def quantize(node: Node, weights: Array, bias: Array | None, data_steps: np.float32, groups: int = 1) -> Quantized:
    """`GetWeightScales` and `ConvertWeightBias2MKLDNN` in mkldnn_common.h; rounded to even by oneDNN's reorder.

    Weights of several groups are `[G, O / G, …]` to that reorder, and MXNet asks for one scale along the first axis: it
    gives all filters of group g the scale of filter g, though their sums are then taken to be in scales of their own.
    (Depthwise, these are the same.) The model's answers in MXNet are what that makes of them, so they are here.
    """
    largest = np.abs(weights.reshape(len(weights), -1)).max(axis=1)
    # A filter of zeros has no scale; whatever it is given, its sums are 0.
    with np.errstate(divide="ignore", over="ignore"):
        steps = np.where(largest > 0, QUANTIZED_RANGES["int8"] / largest, np.float32(1)).astype(np.float32)
        if bias is not None:
            fitting = np.where(bias != 0, _LARGEST_BIAS / np.abs(bias) / data_steps, np.float32(np.inf))
            steps = np.minimum(steps, fitting.astype(np.float32))
    node.require(bool((np.isfinite(steps) & (steps > 1e-12) & (steps < 1e12)).all()), "has weights out of all scale")
    applied = np.repeat(steps[:groups], len(weights) // groups) if groups > 1 else steps
    column = applied.reshape(-1, *[1] * (weights.ndim - 1))
    stored = np.clip(np.rint(weights * column), -128, 127).astype(np.int8)
    if bias is None:
        return Quantized(stored, None, steps)
    whole = np.clip(np.rint((bias * (steps * data_steps)).astype(np.float64)), -(1 << 31), (1 << 31) - 1)
    return Quantized(stored, whole.astype(np.int32), steps)
