"""Quantizes weights in the same way as MXNet, which does so when it first runs a layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm import relax

from service.compiler.importers.mxnet.attributes import Attributes
from service.compiler.importers.mxnet.node import Node
from service.compiler.importers.mxnet.scales import QUANTIZED_RANGES, Range, axis_type, max_abs, steps_per_unit
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

_LARGEST_BIAS = np.float32((1 << 31) - 1) / 2  # the largest magnitude of a bias; oneDNN mishandles INT_MAX
_MOST_BIAS = (1 << 31) // 2 - 1


@dataclass(frozen=True, eq=False)
class Weights:
    """int8 weights, their int32 bias, and the number of steps per unit: one for each filter, or one for all."""

    data: Array
    bias: Array | None
    steps: Array

    @property
    def type(self) -> QuantizedType:
        return axis_type("int8", 1 / self.steps.astype(np.float64), 0)

    @property
    def bias_expr(self) -> relax.Constant | None:
        return None if self.bias is None else relax.const(self.bias, "int32")


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
    root = np.sqrt(np.maximum(variance.astype(np.float64) + eps, 0))
    node.require(bool((root > 0).all()), "has a variance that is not positive")
    numerator = np.ones_like(gamma) if norm.flag("fix_gamma", True) else gamma
    alpha = (numerator / root).astype(np.float32)
    shift = -alpha * mean if bias is None else alpha * (bias - mean)
    return weights * _column(alpha, weights), beta + shift


def quantize(node: Node, weights: Array, bias: Array | None, data_steps: np.float32, groups: int = 1) -> Weights:
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
    fits = bool((np.isfinite(steps) & (steps > 1e-12) & (steps < 1e12)).all())
    node.require(fits, "has weights that are too large or too small to be quantized")
    applied = np.repeat(steps[:groups], len(weights) // groups) if groups > 1 else steps
    stored = np.clip(np.rint(weights * _column(applied, weights)), -128, 127).astype(np.int8)
    if bias is None:
        return Weights(stored, None, steps)
    whole = np.clip(np.rint((bias * (steps * data_steps)).astype(np.float64)), -(1 << 31), (1 << 31) - 1)
    return Weights(stored, whole.astype(np.int32), steps)


def rescale(
    weights: Array,
    bias: Array | None,
    bias_range: Range | None,
    steps: np.float32,
    data_steps: np.float32,
    to_integer: Callable[[Array], Array],
) -> Weights:
    """Converts an int8 bias to int32 with the scale of the sums. If the result would overflow, the weights are scaled
    down.
    """
    if bias is None or bias_range is None:
        return Weights(weights, None, np.array([steps]))
    bias_steps = steps_per_unit("int8", *bias_range)
    factor = np.float32(data_steps * steps / bias_steps)
    most = np.float32(np.float32(_MOST_BIAS) / max_abs(*bias_range) / bias_steps)
    if factor > most:
        shrink = np.float32(most * bias_steps / data_steps / steps)
        weights, steps, factor = round_away(weights * shrink).astype(np.int8), np.float32(steps * shrink), most
    return Weights(weights, to_integer(bias * factor).astype(np.int32), np.array([steps]))


def round_away(values: Array) -> Array:
    """Rounds as std::round does: halves away from zero."""
    return np.asarray(np.trunc(values + np.copysign(0.5, values.astype(np.float64))))


def _column(values: Array, weights: Array) -> Array:
    """Returns one value for each filter, reshaped so that it broadcasts with the weights."""
    return values.reshape(-1, *[1] * (weights.ndim - 1))
