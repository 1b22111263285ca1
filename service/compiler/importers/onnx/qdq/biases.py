"""Converts biases to the type of the accumulators."""

from __future__ import annotations

import numpy as np

from service.compiler.importers.onnx.model import Tensor
from service.compiler.importers.onnx.rewriting import DEQUANTIZE, QUANTIZE, OnnxGraph, bounds_of, is_simple
from service.compiler.importers.qdq import MOVED, Operator
from service.core.models.arrays import Array

_LIMIT = 2.0**31
_SCALE_TOLERANCE = 1e-3  # relative tolerance when a stored bias's scale is compared with s_x * s_w


def stored_bias(
    graph: OnnxGraph, name: str, activations: tuple[str, str, str], weights: tuple[str, str, str]
) -> str | None:
    """Returns the name of an int32 constant: the bias in steps of s_x * s_w. Returns "" if the layer has no bias, and
    None if the bias is not constant.

    Most stored biases already have that scale. Other stored biases, and real ones, are rounded to that scale, as ONNX
    Runtime does (qdq_transformer/weight_bias_quantization.cc).
    """
    if name == "":
        return ""
    scale, step = graph.constants.get(weights[1]), graph.scalar(activations[1])
    if scale is None or scale.data is None or scale.dtype != "float32" or step is None:
        return None
    product = np.float32(step) * scale.data.reshape(-1)
    conversion = graph.made_by(name, DEQUANTIZE)
    if scale.was_zero is not None:  # the bias's scale is then 0 too, and any number of steps means 0
        product = np.where(scale.was_zero.reshape(-1), np.float32(np.inf), product)
    if conversion is None:
        return _rounded_bias(graph, name, graph.constants.get(name), np.float32(1), product)
    values, own = (graph.constants.get(part) for part in conversion.inputs[:2])
    if values is None or values.dtype != "int32" or own is None or own.data is None:
        return None
    scales = own.data.reshape(-1)
    if scales.size in (1, product.size):
        is_close = np.isclose(scales, product, rtol=_SCALE_TOLERANCE, atol=0)
        if values.data is not None and values.data.size == product.size:
            is_close |= values.data.reshape(-1) == 0  # a bias of 0 is the same in every scale
        if is_close.all():
            return values.name
    return _rounded_bias(graph, name, values, scales, product)


def rounds_operands(graph: OnnxGraph, operator: Operator) -> bool:
    """Returns true if ONNX Runtime quantizes the real weights of a layer and rounds its bias to the accumulators' scale
    (qdq_transformer/weight_bias_quantization.cc). ONNX Runtime does so if it finds a conversion with one scale before
    the layer, and a conversion with any number of scales after it.
    """
    conversion = graph.made_by(operator.inputs[0], DEQUANTIZE)
    if conversion is None or not is_simple(graph, conversion) or conversion.attributes.get(MOVED):
        return False
    return is_quantized(graph, operator)


def is_quantized(graph: OnnxGraph, operator: Operator) -> bool:
    """Returns true if only a QuantizeLinear reads the result of `operator`, possibly after activations."""
    reader = graph.only_reader(operator.outputs[0])
    while reader is not None and bounds_of(graph, reader, reader.inputs[0]) is not None:
        reader = graph.only_reader(reader.outputs[0])
    return reader is not None and reader.op_type == QUANTIZE


def _rounded_bias(
    graph: OnnxGraph, name: str, bias: Tensor | None, scale: Array | np.float32, product: Array
) -> str | None:
    if bias is None or bias.data is None or bias.dtype not in ("float32", "int32"):
        return None
    values = bias.data.reshape(-1)
    if any(row.size not in (1, values.size) for row in (np.asarray(scale), product)):
        return None
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        steps = np.rint(values.astype(np.float32) * scale / product)
    # Values that int32 cannot represent, and NaN, become its smallest value: ONNX Runtime's Cast is x86-64's CVTTPS2DQ.
    steps = np.where(np.abs(steps) < _LIMIT, steps, -_LIMIT)
    quantized = Tensor(graph.new_name(name), "int32", steps.shape, steps.astype(np.int32))
    graph.constants[quantized.name] = quantized
    return quantized.name


def rounded_bias(graph: OnnxGraph, name: str, activations: tuple[str, str, str], weights: tuple[str, str, str]) -> str:
    """Returns a constant: the real values of a bias after the rounding by `stored_bias`, as DequantizeLinear computes
    them.
    """
    if not name:
        return ""
    bias, scale, step = graph.known_value(name), graph.known_value(weights[1]), graph.scalar(activations[1])
    assert bias is not None  # stored_bias has checked the bias and both scales
    assert scale is not None
    assert step is not None
    real = bias.astype(np.float32) * (np.float32(step) * scale.reshape(-1))
    added = Tensor(graph.new_name(name), "float32", real.shape, real)
    graph.constants[added.name] = added
    return added.name
