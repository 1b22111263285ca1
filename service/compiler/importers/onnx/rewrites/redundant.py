"""Removes activations that quantization makes redundant. ONNX Runtime's optimizer does so before it moves conversions.

The values stay the same. But the operator before the activation is then directly before a QuantizeLinear, and becomes a
quantized operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from service.compiler.importers.onnx.file.tensors import NIBBLES
from service.compiler.importers.onnx.model import Model
from service.compiler.importers.onnx.qdq.fusions import product_and_row
from service.compiler.importers.onnx.qdq.operators import moves_conversions
from service.compiler.importers.onnx.rewriting import BYTES, QUANTIZE, OnnxGraph, bounds_of, parameters
from service.compiler.importers.qdq import Operator

_MOVED_LATER = ("Identity", "Transpose")
_OPERANDS = 3  # the number of operands of a QuantizeLinear with an explicit zero point
_EPSILON = float(np.finfo(np.float32).eps)


def drop_redundant_activations(model: Model) -> tuple[Model, tuple[str, ...]]:
    """Returns `model` without redundant activations, and a notice for each removal that changes values.

    Removes every Relu and Clip that does not change any stored value of the only QuantizeLinear after it.

    A Relu changes nothing if the zero point is the smallest value of its type (`ReluQuantFusion` in
    optimizer/qdq_transformer/relu_quantizelinear.cc). Before a conversion to 4 bits, ONNX Runtime 1.31.1 removes every
    Relu, and so does this pass. A Clip changes nothing if its bounds include those of the type
    and all bounds are constants without axes (`ClipQuantFusion` in clip_quantizelinear.cc). The optimizer moves
    conversions first, so there may be operators through which conversions move between the activation and the
    QuantizeLinear. It does not move conversions again afterwards. So an activation stays if such an operator is before
    it; if the activation were removed here, the conversion would move through that operator. Transposes are an
    exception, because a later rule swaps them with the conversion.

    The Add of a bias to a MatMul can be such an operator: for more than two dimensions the optimizer makes a Gemm of
    the two and a Reshape after it. The ranks are not known yet, so an activation after such an Add stays for matrices
    too, where it changes no value.

    Requires: a graph that `graph.check_graph` has accepted.
    Ensures: a graph that `check_graph` would accept, with the same inputs and outputs.
    """
    graph = OnnxGraph.whole(model)
    dropped: dict[str, str] = {}  # an activation's output -> its input
    notices: list[str] = []
    for conversion in model.operators:
        if conversion.op_type != QUANTIZE or len(conversion.inputs) != _OPERANDS:
            continue
        name, found = conversion.inputs[0], dict[str, str]()
        while graph.only_reader(name) and (operator := graph.producers.get(name)) is not None and operator.inputs:
            if operator.op_type == "Relu" and _has_4_bits(graph, conversion):
                dropped[name] = operator.inputs[0]
                notices.append(
                    f"ONNX Runtime's optimizer removes {operator.label}, because {conversion.label} stores 4 bits: the "
                    "build does so, too"
                )
            elif operator.op_type in ("Relu", "Clip") and _is_redundant(graph, operator, conversion):
                found[name] = operator.inputs[0]
            elif operator.op_type == "Add" and product_and_row(graph, operator)[0] is not None:
                found.clear()
                break
            elif not moves_conversions(graph, operator):
                break
            elif found and operator.op_type not in _MOVED_LATER:
                found.clear()
                break
            name = operator.inputs[0]
        dropped |= found
    if not dropped:
        return model, ()
    kept = (operator for operator in model.operators if operator.outputs[0] not in dropped)
    rewired = replace(model, operators=tuple(_rewired(operator, dropped) for operator in kept))
    return rewired, tuple(notices)


def _rewired(operator: Operator, dropped: Mapping[str, str]) -> Operator:
    """Returns `operator` with each dropped activation's output replaced by that activation's input."""
    inputs = []
    for name in operator.inputs:
        while name in dropped:
            name = dropped[name]
        inputs.append(name)
    return replace(operator, inputs=tuple(inputs))


def _has_4_bits(graph: OnnxGraph, conversion: Operator) -> bool:
    point = graph.constants.get(parameters(conversion)[1])
    return point is not None and point.dtype in NIBBLES and point.data is not None and point.data.size == 1


def _is_redundant(graph: OnnxGraph, activation: Operator, conversion: Operator) -> bool:
    scale, point = (graph.known_value(name) for name in parameters(conversion))
    if not activation.inputs or point is None or point.size != 1:
        return False
    if graph.constants[parameters(conversion)[1]].dtype not in BYTES:
        return False
    limits, zero_point = np.iinfo(point.dtype), int(point.reshape(-1)[0])
    if activation.op_type == "Relu":
        return zero_point == limits.min
    bounds = bounds_of(graph, activation, activation.inputs[0])
    if bounds is None or scale is None or scale.shape or point.shape or scale.dtype != np.float32:
        return False
    lower, upper = (float(np.float32(scale) * np.float32(limit - zero_point)) for limit in (limits.min, limits.max))
    return bounds[0] - lower <= _EPSILON and upper - bounds[1] <= _EPSILON
