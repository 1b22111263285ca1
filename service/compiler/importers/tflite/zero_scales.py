"""Replaces weights whose scale is 0. Some converters write this scale for a filter whose weights are all zero.

LiteRT multiplies the sums of such a filter by 0 / s, whatever its weights and bias are. The result is the output's zero
point, or the bias if sums become real values (`Prepare` in tflite/kernels/conv.cc and similar kernels). Weights of 0
with any scale, and a bias of 0, give the same result.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from service.compiler.importers.tflite.model import Quantization, Subgraph, Tensor
from service.core.models.arrays import Array

Graph = TypeVar("Graph", bound=Subgraph)
_WEIGHTS = 1
# Operator -> the index of its bias among the inputs.
_BIASES = {"CONV_2D": 2, "DEPTHWISE_CONV_2D": 2, "FULLY_CONNECTED": 2, "TRANSPOSE_CONV": 3}


def replace_zero_scales(model: Graph) -> Graph:
    """Returns `model` without weights of scale 0 in its convolutions and dense layers."""
    tensors, operators = list(model.tensors), []
    for operator in model.operators:
        scaled = _BIASES.get(operator.name) is not None and len(operator.inputs) > _WEIGHTS
        weights = model.tensors[operator.inputs[_WEIGHTS]] if scaled and operator.inputs[_WEIGHTS] >= 0 else None
        if weights is None or weights.data is None or weights.quantization is None or all(weights.quantization.scales):
            operators.append(operator)
            continue
        zero = np.array(weights.quantization.scales) == 0
        inputs = list(operator.inputs)
        inputs[_WEIGHTS] = _added(tensors, _zeroed(weights, weights.data, weights.quantization, zero))
        position = _BIASES[operator.name]
        bias = model.tensors[inputs[position]] if position < len(inputs) and inputs[position] >= 0 else None
        if bias is not None and bias.data is not None and bias.dtype != "float32" and _fits(bias.data, zero):
            data = np.where(zero, np.zeros((), bias.data.dtype), bias.data.reshape(-1)).reshape(bias.data.shape)
            inputs[position] = _added(tensors, replace(bias, data=data, quantization=None))
        operators.append(replace(operator, inputs=tuple(inputs)))
    return replace(model, tensors=tuple(tensors), operators=tuple(operators))


def _zeroed(weights: Tensor, data: Array, quantization: Quantization, zero: Array) -> Tensor:
    """Returns `weights` with 0 for each element whose scale is 0, and a scale of 1."""
    shape = [-1 if axis == quantization.axis else 1 for axis in range(data.ndim)] if quantization.per_axis else [1]
    points = np.array(quantization.zero_points).astype(data.dtype)
    kept = np.where(zero.reshape(shape), points.reshape(shape), data).astype(data.dtype)
    scales = tuple(1.0 if scale == 0 else scale for scale in quantization.scales)
    return replace(weights, data=kept, quantization=replace(quantization, scales=scales))


def _fits(bias: Array, zero: Array) -> bool:
    return len(zero) in (1, bias.size)


def _added(tensors: list[Tensor], tensor: Tensor) -> int:
    """Appends a constant that is not in any buffer of the file, and returns its index."""
    index = len(tensors)
    tensors.append(replace(tensor, index=index, storage=-1 - index))
    return index
