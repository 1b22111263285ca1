"""Sorts the operators of a graph into an order in which they can be computed.

The specification requires that order in a file (onnx/docs/IR.md, "Graphs"), but some exporters do not follow it. ONNX
Runtime therefore sorts the nodes of every graph that it loads (core/graph/graph.cc,
`PerformTopologicalSortAndCheckIsAcyclic`).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence

from service.compiler.importers.names import shortened
from service.compiler.importers.qdq import Graph, Operator
from service.core.errors import MalformedModel


def in_order(operators: Sequence[Operator]) -> tuple[Operator, ...]:
    """Returns `operators` sorted, so that each comes after those whose outputs it reads. Among operators that could
    come next, the first one in the file is chosen, so that a graph that is already sorted does not change.

    Raises:
        MalformedModel: the operators form a cycle.
    """
    graph = Graph((), ())
    graph.replace_all(operators)
    positions = {operator: index for index, operator in enumerate(operators)}
    # for each operator: the operators whose outputs it reads, and which are not sorted yet
    missing = {
        operator: {graph.producers[name] for name in operator.inputs if name in graph.producers}
        for operator in operators
    }
    ready = [index for index, operator in enumerate(operators) if not missing[operator]]
    result: list[Operator] = []
    while ready:
        operator = operators[heapq.heappop(ready)]
        result.append(operator)
        for reader in {reader for name in operator.outputs for reader in graph.readers.get(name, ())}:
            if operator in missing[reader]:
                missing[reader].remove(operator)
                if not missing[reader]:
                    heapq.heappush(ready, positions[reader])
    if len(result) < len(operators):
        _refuse_cycle(missing)
    return tuple(result)


def _refuse_cycle(missing: Mapping[Operator, Collection[Operator]]) -> None:
    """Raises `MalformedModel` with the name of an operator in a cycle."""
    operator = next(operator for operator, needed in missing.items() if needed)
    seen: set[Operator] = set()
    while operator not in seen:  # each remaining operator reads from another remaining one
        seen.add(operator)
        operator = min(missing[operator], key=lambda each: each.index)
    tensor = shortened(next(name for name in operator.outputs if name))
    raise MalformedModel(
        f"{operator.label} depends on its own output {tensor}: the graph has a cycle", op=operator.label, tensor=tensor
    )
