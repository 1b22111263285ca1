"""From float operators between DequantizeLinear and QuantizeLinear to quantized operators.

ONNX writes quantized models in two forms. In one, operators take stored values (QLinearConv). In the other, operators
take real ones, and stand between conversions: DequantizeLinear, Conv, Relu, QuantizeLinear. This pass makes the first
form of the second, as ONNX Runtime's own optimizer does (core/optimizer/qdq_transformer), so that what follows knows
one form. It works on the graph as it was read, before shapes are known:

1. Conversions move through operators that only move elements (`MOVES`, and Relu, whose bound is stored exactly):
   DequantizeLinear towards the outputs, QuantizeLinear towards the inputs. The values stay the same, bit for bit.
2. What then stands between conversions becomes a quantized operator (`FUSED`), with Relu and Clip behind it as bounds
   of its stored output. Where nothing stands between, what is left is one requantization.
3. What nobody reads any more goes.

Requires: a graph that `graph.check_graph` has passed.
Ensures: one that it would pass, of the same inputs and outputs. What is not put into a quantized operator stays as it
was, and computes in float32.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from service.compiler.importers.onnx.fusions import FUSED, LEAST_INPUTS
from service.compiler.importers.onnx.model import REQUANTIZE, UNBOUNDED, Model, Operator
from service.compiler.importers.onnx.rewriting import DEQUANTIZE, QUANTIZE, Graph, bounds_of, parameters
from service.core.errors import MalformedModel

# Operators that only move elements of their first input, or choose between them by an order that stored values share.
MOVES = frozenset(
    {"Dropout", "Flatten", "Identity", "MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)


def fuse(model: Model) -> Model:
    """`model` with quantized operators where it had float ones between conversions.

    Raises:
        MalformedModel: an operator that may be concerned has too few inputs.
    """
    graph = Graph(model)
    for operator in model.operators:
        if len(operator.inputs) < LEAST_INPUTS.get(operator.op_type, 0):
            raise MalformedModel(f"{operator.label} has {len(operator.inputs)} inputs", op=operator.label)
        for placed in _dequantized_later(graph, operator):
            graph.append(placed)
    graph.replace_all(_quantized_earlier(graph))
    graph.replace_all(_fused(graph))
    return replace(model, operators=tuple(_needed(graph)), constants=graph.constants)


def _dequantized_later(graph: Graph, operator: Operator) -> list[Operator]:
    """`operator`, or what does the same on stored values and the conversion behind it."""
    if not (operator.op_type in MOVES or operator.op_type == "Relu") or not operator.inputs:
        return [operator]
    conversion = graph.made_by(operator.inputs[0], DEQUANTIZE)
    if conversion is None or any(operator.outputs[1:]) or not graph.per_tensor(conversion):
        return [operator]
    stored = graph.new_name(operator.outputs[0])
    scale, zero_point = parameters(conversion)
    if operator.op_type == "Relu":
        inputs = (conversion.inputs[0], scale, zero_point, scale, zero_point)
        moved = Operator(operator.index, REQUANTIZE, inputs, (stored,), {}, clamp=(0.0, math.inf))
    else:
        moved = replace(operator, inputs=(conversion.inputs[0], *operator.inputs[1:]), outputs=(stored,))
    behind = replace(conversion, inputs=(stored, *conversion.inputs[1:]), outputs=operator.outputs[:1])
    return [moved, behind]


def _quantized_earlier(graph: Graph) -> list[Operator]:
    """Every QuantizeLinear in front of the operators that only move what it reads."""
    swapped: dict[str, Operator] = {}  # by output: what stands in place of an operator
    for conversion in reversed(graph.operators):
        if conversion.op_type != QUANTIZE or not graph.per_tensor(conversion):
            continue
        chain: list[Operator] = []
        name = conversion.inputs[0]
        while (move := graph.made_by(name, *MOVES)) is not None and graph.only_reader(name) is not None:
            if any(move.outputs[1:]):
                break
            chain.append(move)
            name = move.inputs[0]
        if not chain:
            continue
        names = [graph.new_name(move.outputs[0]) for move in chain]
        for place, move in enumerate(chain):
            target = conversion.outputs if place == 0 else (names[place - 1],)
            swapped[move.outputs[0]] = replace(move, inputs=(names[place], *move.inputs[1:]), outputs=target)
        swapped[conversion.outputs[0]] = replace(
            conversion, inputs=(name, *conversion.inputs[1:]), outputs=(names[-1],)
        )
    return _sorted(graph, swapped)


def _sorted(graph: Graph, swapped: Mapping[str, Operator]) -> list[Operator]:
    """The operators with some in other places, each behind what it reads: a conversion is put in front of the first
    of its chain."""
    result: list[Operator] = []
    waiting: dict[str, Operator] = {}  # a conversion's output -> the conversion
    for operator in swapped.values():
        if operator.op_type == QUANTIZE:
            waiting[operator.outputs[0]] = operator
    for operator in graph.operators:
        if operator.op_type == QUANTIZE and operator.outputs[0] in swapped:
            continue
        placed = swapped.get(operator.outputs[0], operator)
        first = waiting.pop(placed.inputs[0], None) if placed is not operator else None
        result += [first, placed] if first is not None else [placed]
    return result


def _fused(graph: Graph) -> list[Operator]:
    result: list[Operator] = []
    gone: set[str] = set()  # outputs that a fused operator has swallowed
    for operator in graph.operators:
        if operator.outputs[0] in gone:
            continue
        made = _replacement(graph, operator)
        if made is None:
            result.append(operator)
            continue
        fused, swallowed = made
        gone |= swallowed
        result += fused
    return result


def _replacement(graph: Graph, operator: Operator) -> tuple[list[Operator], set[str]] | None:
    """The quantized operators that compute what `operator` and those behind it compute, and their outputs.

    They stand where `operator` stood, so what they read is there, and what reads them comes later.
    """
    rule = FUSED.get(operator.op_type)
    if rule is None:
        return None
    clamp, conversion, swallowed = _behind(graph, operator)
    made = rule(graph, operator, conversion)
    if not made:
        return None
    if conversion is not None:
        made[-1] = replace(made[-1], outputs=conversion.outputs[:1], clamp=clamp)
    return made, swallowed


def _behind(graph: Graph, operator: Operator) -> tuple[tuple[float, float], Operator | None, set[str]]:
    """The activations behind an operator as bounds, the conversion behind those, and the outputs of them all."""
    own = bounds_of(graph, operator, operator.inputs[0]) if operator.op_type == "Clip" else None
    clamp, swallowed, name = own or UNBOUNDED, set(), operator.outputs[0]
    while (reader := graph.only_reader(name)) is not None:
        swallowed.add(reader.outputs[0])
        if reader.op_type == QUANTIZE and reader.inputs[0] == name and graph.per_tensor(reader):
            return clamp, reader, swallowed
        bounds = bounds_of(graph, reader, name)
        if bounds is None:
            break
        # The later one has the last word: clip(clip(x, a, b), c, d).
        clamp = (min(max(clamp[0], bounds[0]), bounds[1]), max(min(clamp[1], bounds[1]), bounds[0]))
        name = reader.outputs[0]
    return UNBOUNDED, None, set()


def _needed(graph: Graph) -> list[Operator]:
    """The operators whose outputs somebody reads, down to the model's own."""
    wanted, kept = Counter(graph.ends), []
    for operator in reversed(graph.operators):
        if any(wanted[name] for name in operator.outputs if name):
            kept.append(operator)
            wanted.update(name for name in operator.inputs if name)
    return kept[::-1]
