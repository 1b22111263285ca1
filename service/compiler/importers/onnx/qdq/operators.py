"""Turns ONNX's float operators between DequantizeLinear and QuantizeLinear into quantized ones (`importers.qdq`). A
quantized operator of ONNX or com.microsoft is used if there is one, but only in places where ONNX Runtime's own
optimizer also uses it.
"""

from __future__ import annotations

import math
from dataclasses import replace

from service.compiler.importers.onnx.model import REQUANTIZE, Model
from service.compiler.importers.onnx.qdq.fusions import FUSED, LEAST_INPUTS
from service.compiler.importers.onnx.rewriting import (
    DEQUANTIZE,
    QUANTIZE,
    OnnxGraph,
    are_alike,
    bounds_of,
    channel_parameters,
    is_simple,
    parameters,
)
from service.compiler.importers.qdq import Operator, Vocabulary
from service.compiler.importers.qdq import fuse as fuse_operators
from service.core.errors import MalformedModel

MOVES = frozenset(
    {
        "DepthToSpace",
        "Dropout",
        "Expand",
        "Flatten",
        "Gather",
        "GlobalMaxPool",
        "Identity",
        "MaxPool",
        "ReduceMax",
        "ReduceMin",
        "Reshape",
        "Slice",
        "SpaceToDepth",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    }
)
# Operators through which ONNX Runtime also moves conversions (`CanNodePropagate` in
# qdq_transformer/qdq_propagation.cc), and Identity, which it removes.
_PROPAGATES = frozenset({"Identity", "MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
_STORED_POOLS_SINCE = 12  # operator set since which a MaxPool takes 8-bit values


def fuse(model: Model) -> Model:
    """Returns `model` with float operators between conversions replaced by quantized ones.

    Requires: a graph that `graph.check_graph` accepts.
    Ensures: a graph that `check_graph` would accept, with the same inputs and outputs. Operators that do not become
        part of a quantized operator are unchanged, and compute in float32.

    Raises:
        MalformedModel: an operator has too few inputs for this pass.
    """
    for operator in model.operators:
        if len(operator.inputs) < LEAST_INPUTS.get(operator.op_type, 0):
            raise MalformedModel(f"{operator.label} has only {len(operator.inputs)} inputs", op=operator.label)
    graph = OnnxGraph(model)
    operators = fuse_operators(graph, model.operators, _VOCABULARY)
    return replace(model, operators=tuple(operators), constants=graph.constants)


def _bounded(relu: Operator, conversion: Operator, stored: str) -> Operator:
    scale, zero_point = parameters(conversion)
    inputs = (conversion.inputs[0], scale, zero_point, scale, zero_point)
    return Operator(relu.index, REQUANTIZE, inputs, (stored,), {}, (0.0, math.inf), relu.written)


def moves_conversions(graph: OnnxGraph, operator: Operator) -> bool:
    """Returns true if ONNX Runtime moves conversions through `operator`."""
    is_older_pool = operator.op_type == "MaxPool" and graph.model.opset < _STORED_POOLS_SINCE
    return operator.op_type in _PROPAGATES and not any(operator.outputs[1:]) and not is_older_pool


_VOCABULARY = Vocabulary(
    quantize=QUANTIZE,
    dequantize=DEQUANTIZE,
    moves=MOVES,
    splits=frozenset({"Split"}),
    joins=frozenset({"Concat"}),
    alike=are_alike,
    keeps_conversions=lambda graph, operator: not moves_conversions(graph, operator),
    per_tensor=is_simple,
    by_channel=lambda graph, operator, conversion: (
        operator.op_type == "Conv" and channel_parameters(graph, conversion) is not None
    ),
    bounds=bounds_of,
    bounded=_bounded,
    bounded_types=frozenset({"Relu"}),
    fused=FUSED,
)
