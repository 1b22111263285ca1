"""Quantizes constant real weights of layers between quantized activations, as ONNX Runtime's optimizer does.

The file contains these weights in float32. ONNX Runtime stores them in 8 bits with one scale, so that the layer
computes in integers (qdq_transformer/weight_bias_quantization.cc).
"""

from __future__ import annotations

import numpy as np

from service.compiler.importers.onnx.model import Tensor
from service.compiler.importers.onnx.qdq.biases import rounds_operands
from service.compiler.importers.onnx.rewriting import OnnxGraph
from service.compiler.importers.qdq import Operator
from service.core.models.arrays import Array

_BOUNDS = np.iinfo(np.int8)


def rounded_weights(graph: OnnxGraph, operator: Operator) -> tuple[str, str, str] | None:
    """Returns the names of stored values, scale and zero point that replace constant float32 weights, or None if the
    weights stay real.

    ONNX Runtime does not quantize the weights of a layer whose bias is not a constant of one dimension.

    Args:
        operator: a Conv, a ConvTranspose or a Gemm.
    """
    weights = graph.constants.get(operator.inputs[1])
    if weights is None or weights.data is None or weights.dtype != "float32" or weights.data.size == 0:
        return None
    if len(operator.inputs) > 2 and operator.inputs[2]:
        bias = graph.constants.get(operator.inputs[2])
        if bias is None or len(bias.shape) != 1:
            return None
    if not rounds_operands(graph, operator) or not np.isfinite(weights.data).all():
        return None
    if weights.name not in graph.rounded:  # layers may share weights
        stored, scale, point = (_constant(graph, weights.name, each) for each in stored_weights(weights.data))
        graph.rounded[weights.name] = stored, scale, point
    return graph.rounded[weights.name]


def stored_weights(weights: Array) -> tuple[Array, Array, Array]:
    """Returns int8 values, scale and zero point. These are computed as by QuantizeLinear with the parameters of
    `GetQuantizationParameter` (core/util/qmath.h), which is not symmetric.
    """
    low, high = min(np.float32(0), weights.min()), max(np.float32(0), weights.max())
    scale = np.float32(1) if low == high else (high - low) / np.float32(_BOUNDS.max - _BOUNDS.min)
    point = np.rint(np.clip(np.float32(_BOUNDS.min) - low / scale, _BOUNDS.min, _BOUNDS.max))
    stored = np.rint(np.clip(weights / scale, _BOUNDS.min - point, _BOUNDS.max - point)) + point
    return stored.astype(np.int8), np.asarray(scale), np.asarray(point).astype(np.int8)


def _constant(graph: OnnxGraph, stem: str, data: Array) -> str:
    name = graph.new_name(stem)
    graph.constants[name] = Tensor(name, data.dtype.name, data.shape, data)
    return name
