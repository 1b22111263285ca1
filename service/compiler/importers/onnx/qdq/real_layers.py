"""Layers between conversions that ONNX Runtime computes in float32, because stored values do not have 8 bits.

ONNX Runtime rounds their operands like those of integer layers: the bias to steps of s_x * s_w, and real weights to
int8 (qdq_transformer/weight_bias_quantization.cc). Without 8-bit values, it then finds no integer operator.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from service.compiler.importers.onnx.model import REAL_MATMUL_ADD, Tensor
from service.compiler.importers.onnx.qdq.biases import is_quantized, rounded_bias, stored_bias
from service.compiler.importers.onnx.qdq.rounded_weights import stored_weights
from service.compiler.importers.onnx.rewriting import DEQUANTIZE, QUANTIZE, OnnxGraph
from service.compiler.importers.qdq import MOVED, Operator
from service.core.models.arrays import Array


def real_layer(graph: OnnxGraph, operator: Operator, conversion: Operator | None) -> list[Operator]:
    """Returns a Conv, ConvTranspose or Gemm with rounded operands, or an empty list if ONNX Runtime rounds none.

    Args:
        conversion: as for `qdq.vocabulary.Fuse`.
    """
    name = operator.inputs[2] if len(operator.inputs) > 2 else ""
    by_rows = operator.op_type == "Conv" or (operator.op_type == "Gemm" and bool(operator.attributes.get("transB", 0)))
    x = _conversion(graph, operator.inputs[0])
    if x is None or not is_quantized(graph, operator):
        return []
    bias = graph.constants.get(name)
    if name and (bias is None or bias.dtype != "float32" or len(bias.shape) != 1):
        return []
    weights, scale = _weights(graph, operator.inputs[1], 0 if by_rows else 1, bias.shape[0] if bias else None)
    if not scale or (not name and weights == operator.inputs[1]):
        return []
    inputs = (operator.inputs[0], weights, *operator.inputs[2:])
    if name:
        rounded = _rounded(graph, name, x, scale)
        if not rounded:
            return []
        inputs = (*inputs[:2], rounded)
    return _with_conversion(graph, replace(operator, inputs=inputs), conversion)


def real_matmul_add(
    graph: OnnxGraph, operator: Operator, product: Operator, row: str, conversion: Operator | None
) -> list[Operator]:
    """Returns a `REAL_MATMUL_ADD` for a MatMul and the Add of a constant row (`operator`), or an empty list."""
    x, bias = _conversion(graph, product.inputs[0]), graph.constants.get(row)
    if x is None or bias is None or bias.dtype != "float32" or len(bias.shape) != 1:
        return []
    if not is_quantized(graph, operator) or graph.made_by(product.inputs[1], DEQUANTIZE) is None:
        return []
    _, scale = _weights(graph, product.inputs[1], 1, bias.shape[0])
    rounded = _rounded(graph, row, x, scale) if scale else ""
    reader = graph.only_reader(operator.outputs[0])
    if not rounded or reader is None:
        return []
    attributes = {
        "has_known_shape": int(graph.has_known_shape(product.inputs[0])),
        "is_activated": int(reader.op_type != QUANTIZE),
    }
    layer = replace(
        operator,
        op_type=REAL_MATMUL_ADD,
        inputs=(*product.inputs, row, rounded),
        attributes=attributes,
        written="MatMul",
    )
    return _with_conversion(graph, layer, conversion)


def _conversion(graph: OnnxGraph, name: str) -> Operator | None:
    """Returns the DequantizeLinear with one scale that computes `name`, if ONNX Runtime finds it there, too."""
    found = graph.made_by(name, DEQUANTIZE)
    if found is None or found.attributes.get(MOVED) or found.attributes.get("block_size", 0):
        return None
    return found if graph.scalar(found.inputs[1]) is not None else None


def _weights(graph: OnnxGraph, name: str, axis: int, filters: int | None) -> tuple[str, str]:
    """Returns the names of the real weights and of their scale. The scale is "" if ONNX Runtime rounds no operand."""
    conversion = graph.made_by(name, DEQUANTIZE)
    if conversion is not None:
        scale, tensor = graph.known_value(conversion.inputs[1]), graph.constants.get(conversion.inputs[0])
        along = conversion.attributes.get("axis", 1)
        if scale is None or tensor is None or conversion.attributes.get("block_size", 0):
            return name, ""
        if scale.size != 1 and not (
            scale.shape == (filters,) and isinstance(along, int) and tensor.shape and along % len(tensor.shape) == axis
        ):
            return name, ""
        return name, conversion.inputs[1]
    data = graph.known_value(name)
    if data is None or data.dtype != np.float32 or not data.size or not np.isfinite(data).all():
        return name, ""
    stored, step, point = stored_weights(data)
    real = (stored.astype(np.float32) - point.astype(np.float32)) * step
    return _constant(graph, name, real), _constant(graph, name, step)


def _rounded(graph: OnnxGraph, name: str, x: Operator, scale: str) -> str:
    """Returns a constant: the bias `name`, rounded to steps of s_x * s_w. Returns "" if that is not possible."""
    scales = ("", x.inputs[1], ""), ("", scale, "")
    steps = stored_bias(graph, name, *scales)
    return rounded_bias(graph, steps, *scales) if steps else ""


def _with_conversion(graph: OnnxGraph, layer: Operator, conversion: Operator | None) -> list[Operator]:
    if conversion is None:
        return [layer]
    between = graph.new_name(layer.outputs[0])
    return [replace(layer, outputs=(between,)), replace(conversion, inputs=(between, *conversion.inputs[1:]))]


def _constant(graph: OnnxGraph, stem: str, data: Array) -> str:
    name = graph.new_name(stem)
    graph.constants[name] = Tensor(name, data.dtype.name, data.shape, data)
    return name
