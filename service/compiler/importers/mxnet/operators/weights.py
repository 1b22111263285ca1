"""Quantizes float32 weights in the same way as MXNet, which does so when it first runs a layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.compiler.importers.mxnet.attributes import Attributes
from service.compiler.importers.mxnet.node import Node
from service.compiler.importers.mxnet.scales import QUANTIZED_RANGES
from service.core.models.arrays import Array

_LARGEST_BIAS = np.float32((1 << 31) - 1) / 2  # the largest magnitude of a bias; oneDNN mishandles INT_MAX


@dataclass(frozen=True, eq=False)
class Quantized:
    """int8 weights, their int32 bias, and the number of steps per unit: one for each filter, or one for all."""

    weights: Array
    bias: Array | None
    steps: Array


def fold_batch_norm(
    node: Node, weights: Array, bias: Array | None, first: int, norm: Attributes
) -> tuple[Array, Array]:
    """Folds the normalization of a layer's outputs into its weights and bias (`UpdateConvWeightBias` in
    mkldnn_conv.cc).

    Args:
        first: the index of the normalization's gamma among the inputs. Beta, mean and variance follow it.
        norm: the normalization's attributes.
    """
    given = norm.real("eps")
    eps = 1e-3 if given is None else given
    gamma, beta, mean, variance = (node.array(first + index, "float32", 1) for index in range(4))
    for array in (gamma, beta, mean, variance):
        node.require(len(array) == len(weights), f"normalizes {len(array)} channels, but has {len(weights)} filters")
    node.require(bool((variance.astype(np.float64) + eps > 0).all()), "has a variance that is not positive")
    numerator = np.ones_like(gamma) if norm.flag("fix_gamma", True) else gamma
    alpha = (numerator / np.sqrt(variance.astype(np.float64) + eps)).astype(np.float32)
    shift = -alpha * mean if bias is None else alpha * (bias - mean)
    return weights * alpha.reshape(-1, *[1] * (weights.ndim - 1)), beta + shift


def quantize(node: Node, weights: Array, bias: Array | None, data_steps: np.float32, groups: int = 1) -> Quantized:
    """Quantizes weights and bias (`GetWeightScales` and `ConvertWeightBias2MKLDNN` in mkldnn_common.h). oneDNN's
    reorder rounds halves to even.

    For several groups, that reorder reads the weights as `[G, O / G, …]`, and MXNet requests one scale along the first
    axis. So all filters of group g are scaled by the scale of filter g, although MXNet later interprets their sums by
    the scale of each filter. (For depthwise convolutions, the two scales are the same.) This function gives the same
    results as MXNet.
    """
    largest = np.abs(weights.reshape(len(weights), -1)).max(axis=1)
    # The scale of a filter of zeros is undefined; with any scale, its sums are 0.
    with np.errstate(divide="ignore", over="ignore"):
        steps = np.where(largest > 0, QUANTIZED_RANGES["int8"] / largest, np.float32(1)).astype(np.float32)
        if bias is not None:
            fitting = np.where(bias != 0, _LARGEST_BIAS / np.abs(bias) / data_steps, np.float32(np.inf))
            steps = np.minimum(steps, fitting.astype(np.float32))
    node.require(
        bool((np.isfinite(steps) & (steps > 1e-12) & (steps < 1e12)).all()),
        "has weights that are too large or too small to be quantized",
    )
    applied = np.repeat(steps[:groups], len(weights) // groups) if groups > 1 else steps
    column = applied.reshape(-1, *[1] * (weights.ndim - 1))
    stored = np.clip(np.rint(weights * column), -128, 127).astype(np.int8)
    if bias is None:
        return Quantized(stored, None, steps)
    whole = np.clip(np.rint((bias * (steps * data_steps)).astype(np.float64)), -(1 << 31), (1 << 31) - 1)
    return Quantized(stored, whole.astype(np.int32), steps)
