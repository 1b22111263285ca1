"""A graph of ONNX that is being rewritten: its constants, and what stands before and behind an operator."""

from __future__ import annotations

import math

from service.compiler.importers.onnx.model import Model
from service.compiler.importers.qdq import Graph, Operator

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"


class OnnxGraph(Graph):
    """The graph in its present state.

    Attributes:
        model: as it was read.
        constants: by name; rules may add some.
    """

    def __init__(self, model: Model) -> None:
        names = {*model.constants, *(end.name for end in model.inputs)}
        names |= {name for operator in model.operators for name in operator.outputs}
        super().__init__(names, (end.name for end in model.outputs))
        self.model = model
        self.constants = dict(model.constants)

    def scalar(self, name: str) -> float | None:
        """The value of a constant of one element."""
        tensor = self.constants.get(name)
        return (
            float(tensor.data.reshape(-1)[0]) if tensor and tensor.data is not None and tensor.data.size == 1 else None
        )


def is_per_tensor(graph: OnnxGraph, conversion: Operator) -> bool:
    """Whether a conversion has one scale, which is constant and positive."""
    scale = graph.scalar(conversion.inputs[1])
    blocks = conversion.attributes.get("block_size", 0)
    return (
        scale is not None
        and scale > 0
        and blocks == 0
        and all(name == "" or graph.scalar(name) is not None for name in conversion.inputs[2:])
    )


def parameters(conversion: Operator) -> tuple[str, str]:
    """Names of the scale and the zero point."""
    padded = (*conversion.inputs, "", "")
    return padded[1], padded[2]


def bounds_of(graph: OnnxGraph, activation: Operator, name: str) -> tuple[float, float] | None:
    if activation.inputs[:1] != (name,):
        return None
    if activation.op_type == "Relu":
        return 0.0, math.inf
    if activation.op_type != "Clip":
        return None
    values: list[object] = [activation.attributes.get("min", -math.inf), activation.attributes.get("max", math.inf)]
    for place, bound in enumerate(activation.inputs[1:3]):
        values[place] = values[place] if bound == "" else graph.scalar(bound)
    low, high = values
    return (low, high) if isinstance(low, float) and isinstance(high, float) and low <= high else None


def dequantized(graph: OnnxGraph, name: str) -> tuple[str, str, str] | None:
    """Stored values, scale and zero point of what DequantizeLinear made of one tensor of one scale."""
    conversion = graph.made_by(name, DEQUANTIZE)
    if conversion is None or not is_per_tensor(graph, conversion):
        return None
    return (conversion.inputs[0], *parameters(conversion))


def weights_of(graph: OnnxGraph, name: str, axis: int) -> tuple[str, str, str] | None:
    """The same of constant weights, which may have scales along one axis."""
    conversion = graph.made_by(name, DEQUANTIZE)
    if conversion is None or conversion.inputs[0] not in graph.constants or conversion.attributes.get("block_size", 0):
        return None
    weights = graph.constants[conversion.inputs[0]]
    named = conversion.attributes.get("axis", 1)
    if not is_per_tensor(graph, conversion) and not (
        isinstance(named, int) and named % max(1, len(weights.shape)) == axis
    ):
        return None
    return (conversion.inputs[0], *parameters(conversion))
