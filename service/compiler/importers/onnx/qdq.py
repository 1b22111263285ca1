"""ONNX's float operators between DequantizeLinear and QuantizeLinear become quantized ones (`importers.qdq`): those
that ONNX and com.microsoft have, where there is one, as ONNX Runtime's own optimizer puts them."""

from __future__ import annotations

import math
from dataclasses import replace

from service.compiler.importers.onnx.fusions import FUSED, LEAST_INPUTS
from service.compiler.importers.onnx.model import REQUANTIZE, Model
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
# Those through which ONNX Runtime moves conversions as well (`CanNodePropagate` in qdq_transformer/qdq_propagation.cc),
# and the one that it removes.
_PROPAGATES = frozenset({"Identity", "MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
_STORED_POOLS_SINCE = 12  # the version of ONNX's operators of which a MaxPool takes 8-bit values


def fuse(model: Model) -> Model:
    """`model` with quantized operators where it had float ones between conversions.

    Requires: a graph that `graph.check_graph` has passed.
    Ensures: one that it would pass, of the same inputs and outputs. What is not put into a quantized operator stays as
    it was, and computes in float32.

    Raises:
        MalformedModel: an operator that may be concerned has too few inputs.
    """
    for operator in model.operators:
        if len(operator.inputs) < LEAST_INPUTS.get(operator.op_type, 0):
            raise MalformedModel(f"{operator.label} has {len(operator.inputs)} inputs", op=operator.label)
    graph = OnnxGraph(model)
    operators = fuse_operators(graph, model.operators, _VOCABULARY)
    return replace(model, operators=tuple(operators), constants=graph.constants)


def _bounded(relu: Operator, conversion: Operator, stored: str) -> Operator:
    scale, zero_point = parameters(conversion)
    inputs = (conversion.inputs[0], scale, zero_point, scale, zero_point)
    return Operator(relu.index, REQUANTIZE, inputs, (stored,), {}, (0.0, math.inf), relu.written)


def _keeps_conversions(graph: OnnxGraph, operator: Operator) -> bool:
    is_older_pool = operator.op_type == "MaxPool" and graph.model.opset < _STORED_POOLS_SINCE
    return operator.op_type not in _PROPAGATES or is_older_pool


_VOCABULARY = Vocabulary(
    quantize=QUANTIZE,
    dequantize=DEQUANTIZE,
    moves=MOVES,
    splits=frozenset({"Split"}),
    joins=frozenset({"Concat"}),
    alike=are_alike,
    keeps_conversions=_keeps_conversions,
    per_tensor=is_simple,
    by_channel=lambda graph, operator, conversion: (
        operator.op_type == "Conv" and channel_parameters(graph, conversion) is not None
    ),
    bounds=bounds_of,
    bounded=_bounded,
    bounded_types=frozenset({"Relu"}),
    fused=FUSED,
)
