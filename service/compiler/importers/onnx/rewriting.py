"""A graph that is being rewritten: who makes and who reads each tensor, and what stands before and behind it."""

from __future__ import annotations

import math
from collections.abc import Iterable

from service.compiler.importers.onnx.model import Model, Operator

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"


class Graph:
    """The graph in its present state.

    Attributes:
        operators: in an order in which they can be computed.
        ends: names of the model's outputs.
        producers, readers: by the tensor's name.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.constants = dict(model.constants)
        self.operators: list[Operator] = []
        self.ends = {end.name for end in model.outputs}
        self.producers: dict[str, Operator] = {}
        self.readers: dict[str, list[Operator]] = {}
        self._names = {*model.constants, *(end.name for end in model.inputs)}
        self._names |= {name for operator in model.operators for name in operator.outputs}

    def append(self, operator: Operator) -> None:
        self.operators.append(operator)
        for name in filter(None, operator.outputs):
            self.producers[name] = operator
        for name in operator.inputs:
            self.readers.setdefault(name, []).append(operator)

    def replace_all(self, operators: Iterable[Operator]) -> None:
        self.operators, self.producers, self.readers = [], {}, {}
        for operator in list(operators):
            self.append(operator)

    def new_name(self, stem: str) -> str:
        name, number = f"{stem}_stored", 0
        while name in self._names:
            number += 1
            name = f"{stem}_stored_{number}"
        self._names.add(name)
        return name

    def made_by(self, name: str, *kinds: str) -> Operator | None:
        """The operator that makes `name`, if it is of one of `kinds`."""
        operator = self.producers.get(name)
        return operator if operator is not None and operator.op_type in kinds else None

    def only_reader(self, name: str) -> Operator | None:
        """The operator that reads `name`, if it is one alone, and the model does not give `name` away."""
        readers = self.readers.get(name, [])
        return readers[0] if name and len(readers) == 1 and name not in self.ends else None

    def scalar(self, name: str) -> float | None:
        """The value of a constant of one element."""
        tensor = self.constants.get(name)
        return (
            float(tensor.data.reshape(-1)[0]) if tensor and tensor.data is not None and tensor.data.size == 1 else None
        )

    def per_tensor(self, conversion: Operator) -> bool:
        """Whether a conversion has one scale, which is constant and positive."""
        scale = self.scalar(conversion.inputs[1])
        blocks = conversion.attributes.get("block_size", 0)
        return (
            scale is not None
            and scale > 0
            and blocks == 0
            and all(name == "" or self.scalar(name) is not None for name in conversion.inputs[2:])
        )


def parameters(conversion: Operator) -> tuple[str, str]:
    """Names of the scale and the zero point."""
    padded = (*conversion.inputs, "", "")
    return padded[1], padded[2]


def bounds_of(graph: Graph, activation: Operator, name: str) -> tuple[float, float] | None:
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


def dequantized(graph: Graph, name: str) -> tuple[str, str, str] | None:
    """Stored values, scale and zero point of what DequantizeLinear made of one tensor of one scale."""
    conversion = graph.made_by(name, DEQUANTIZE)
    if conversion is None or not graph.per_tensor(conversion):
        return None
    return (conversion.inputs[0], *parameters(conversion))


def weights_of(graph: Graph, name: str, axis: int) -> tuple[str, str, str] | None:
    """The same of constant weights, which may have scales along one axis."""
    conversion = graph.made_by(name, DEQUANTIZE)
    if conversion is None or conversion.inputs[0] not in graph.constants or conversion.attributes.get("block_size", 0):
        return None
    weights = graph.constants[conversion.inputs[0]]
    named = conversion.attributes.get("axis", 1)
    if not graph.per_tensor(conversion) and not (isinstance(named, int) and named % max(1, len(weights.shape)) == axis):
        return None
    return (conversion.inputs[0], *parameters(conversion))
