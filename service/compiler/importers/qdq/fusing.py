"""The pass that moves conversions and turns the float operators between conversions into quantized ones.

The pass follows ONNX Runtime's own optimizer (core/optimizer/qdq_transformer), so that the following steps have to
handle only one form. The pass works on the graph as it was read, before shapes are known:

1. Conversions move through operators that only move elements: dequantizations towards the outputs, and quantizations
   towards the inputs. (These operators are those in `Vocabulary.moves`, those that join parts of one quantization, and
   Relu, whose bound is stored exactly.) All values stay the same, bit for bit.
2. Operators that are then between conversions become quantized operators (`Vocabulary.fused`). Activations after such
   an operator become bounds of its stored output. Two conversions without an operator between them become one
   requantization.
3. Operators without readers are removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

from service.compiler.importers.qdq.graph import MOVED, UNBOUNDED, Graph, Operator
from service.compiler.importers.qdq.vocabulary import Bounds, G, Vocabulary


def fuse(graph: G, operators: Iterable[Operator], vocabulary: Vocabulary[G]) -> list[Operator]:
    """Replaces float operators between conversions by quantized ones. Returns all operators; `graph` then contains
    them.

    Requires: `operators` are sorted, and each has at least one output. Conversions and the operators of
        `vocabulary.fused` have all inputs that the vocabulary's functions read. `graph` is empty.
    Ensures: the same conditions hold for the result. Operators that do not become part of a quantized operator are
    unchanged.
    """
    operators = list(operators)
    quantized = {operator.inputs[0] for operator in operators if operator.op_type == vocabulary.quantize}
    for operator in operators:
        for placed in _dequantized_later(graph, operator, vocabulary, quantized):
            graph.append(placed)
    graph.replace_all(_quantized_earlier(graph, vocabulary))
    graph.replace_all(_fused(graph, vocabulary))
    graph.replace_all(_needed(graph))
    return graph.operators


def _dequantized_later(graph: G, operator: Operator, vocabulary: Vocabulary[G], quantized: Set[str]) -> list[Operator]:
    """Returns `operator`, or an equivalent operator on stored values, followed by the conversions of its outputs.

    Args:
        quantized: names of tensors that are quantized again. An operator that joins parts into such a tensor is
            returned unchanged, because `vocabulary.fused` replaces the operator together with this quantization.
    """
    if operator.op_type in vocabulary.joins and operator.outputs[0] not in quantized:
        return _joined_stored(graph, operator, vocabulary)
    if operator.op_type not in vocabulary.moves | vocabulary.splits | vocabulary.bounded_types or not operator.inputs:
        return [operator]
    conversion = graph.made_by(operator.inputs[0], vocabulary.dequantize)
    several = operator.op_type not in vocabulary.splits and any(operator.outputs[1:])
    if conversion is None or several or not vocabulary.per_tensor(graph, conversion):
        return [operator]
    if vocabulary.keeps_conversions(graph, operator):
        conversion = replace(conversion, attributes={**conversion.attributes, MOVED: 1})
    stored = tuple(graph.new_name(name) if name else "" for name in operator.outputs)
    if operator.op_type in vocabulary.bounded_types:
        moved = vocabulary.bounded(operator, conversion, stored[0])
    else:
        moved = replace(operator, inputs=(conversion.inputs[0], *operator.inputs[1:]), outputs=stored)
    behind = [
        replace(conversion, inputs=(own, *conversion.inputs[1:]), outputs=(name,))
        for own, name in zip(stored, operator.outputs, strict=True)
        if name
    ]
    return [moved, *behind]


def _joined_stored(graph: G, operator: Operator, vocabulary: Vocabulary[G]) -> list[Operator]:
    """Does the same as `_dequantized_later` for an operator that joins parts, if all parts have the same
    quantization.
    """
    conversions = [graph.made_by(name, vocabulary.dequantize) for name in operator.inputs]
    parts = [each for each in conversions if each is not None and vocabulary.per_tensor(graph, each)]
    if not parts or len(parts) != len(conversions) or not vocabulary.alike(graph, parts):
        return [operator]
    stored = graph.new_name(operator.outputs[0])
    moved = replace(operator, inputs=tuple(each.inputs[0] for each in parts), outputs=(stored,))
    inputs, attributes = (stored, *parts[0].inputs[1:]), {**parts[0].attributes, MOVED: 1}
    return [moved, replace(parts[0], inputs=inputs, outputs=operator.outputs[:1], attributes=attributes)]


def _quantized_earlier(graph: G, vocabulary: Vocabulary[G]) -> list[Operator]:
    """Returns the operators with every quantization moved before operators that only move the elements that it reads.

    A quantization that the framework does not move is not moved here. Moving it would create a quantized operator that
    the framework does not create.
    """
    swapped: dict[str, Operator] = {}  # output -> the operator that replaces its producer
    for conversion in reversed(graph.operators):
        if conversion.op_type != vocabulary.quantize or not vocabulary.per_tensor(graph, conversion):
            continue
        chain: list[Operator] = []
        name = conversion.inputs[0]
        while (move := graph.made_by(name, *vocabulary.moves)) is not None and graph.only_reader(name) is not None:
            if any(move.outputs[1:]) or vocabulary.keeps_conversions(graph, move):
                break
            chain.append(move)
            name = move.inputs[0]
        if not chain:
            continue
        names = [graph.new_name(move.outputs[0]) for move in chain]
        for index, move in enumerate(chain):
            target = conversion.outputs if index == 0 else (names[index - 1],)
            swapped[move.outputs[0]] = replace(move, inputs=(names[index], *move.inputs[1:]), outputs=target)
        swapped[conversion.outputs[0]] = replace(
            conversion, inputs=(name, *conversion.inputs[1:]), outputs=(names[-1],)
        )
    return _sorted(graph, swapped, vocabulary.quantize)


def _sorted(graph: Graph, swapped: Mapping[str, Operator], quantize: str) -> list[Operator]:
    """Returns the operators after the replacements in `swapped`, sorted. A conversion is put before the first operator
    of its chain.
    """
    result: list[Operator] = []
    waiting: dict[str, Operator] = {}  # a conversion's output -> the conversion
    for operator in swapped.values():
        if operator.op_type == quantize:
            waiting[operator.outputs[0]] = operator
    for operator in graph.operators:
        if operator.op_type == quantize and operator.outputs[0] in swapped:
            continue
        placed = swapped.get(operator.outputs[0], operator)
        first = waiting.pop(placed.inputs[0], None) if placed is not operator else None
        result += [first, placed] if first is not None else [placed]
    return result


def _fused(graph: G, vocabulary: Vocabulary[G]) -> list[Operator]:
    result: list[Operator] = []
    gone: set[str] = set()  # outputs of operators that became part of a fused operator
    for operator in graph.operators:
        if operator.outputs[0] in gone:
            continue
        made = _replacement(graph, operator, vocabulary)
        if made is None:
            result.append(operator)
            continue
        fused, swallowed = made
        gone |= swallowed
        result += fused
    return result


def _replacement(graph: G, operator: Operator, vocabulary: Vocabulary[G]) -> tuple[list[Operator], set[str]] | None:
    """Returns the quantized operators that replace `operator` and operators after it, and the outputs of the replaced
    operators.

    The replacements are put at the position of `operator`. Their inputs are computed before it, and their readers come
    after it.
    """
    rule = vocabulary.fused.get(operator.op_type)
    if rule is None:
        return None
    clamp, conversion, swallowed = _behind(graph, operator, vocabulary)
    made = rule(graph, operator, conversion)
    if not made:
        return None
    if conversion is not None:
        made[-1] = replace(made[-1], outputs=conversion.outputs[:1], clamp=clamp)
    return made, swallowed


def _behind(graph: G, operator: Operator, vocabulary: Vocabulary[G]) -> tuple[Bounds, Operator | None, set[str]]:
    """Finds the activations after an operator. Returns their bounds, the conversion after them, and the outputs of all
    of these.
    """
    own = vocabulary.bounds(graph, operator, operator.inputs[0])
    clamp, swallowed, name = own or UNBOUNDED, set(), operator.outputs[0]
    while (reader := graph.only_reader(name)) is not None:
        swallowed.add(reader.outputs[0])
        if reader.op_type == vocabulary.quantize and reader.inputs[0] == name:
            taken = vocabulary.per_tensor(graph, reader) or vocabulary.by_channel(graph, operator, reader)
            return (clamp, reader, swallowed) if taken else (UNBOUNDED, None, set())
        bounds = vocabulary.bounds(graph, reader, name)
        if bounds is None:
            break
        # The later activation takes precedence: clip(clip(x, a, b), c, d).
        clamp = (min(max(clamp[0], bounds[0]), bounds[1]), max(min(clamp[1], bounds[1]), bounds[0]))
        name = reader.outputs[0]
    return UNBOUNDED, None, set()


def _needed(graph: Graph) -> list[Operator]:
    """Returns the operators that the model's outputs depend on."""
    wanted, kept = Counter(graph.ends), []
    for operator in reversed(graph.operators):
        if any(wanted[name] for name in operator.outputs if name):
            kept.append(operator)
            wanted.update(name for name in operator.inputs if name)
    return kept[::-1]
