"""Sorts the operators of a graph into an order in which they can be computed.

The specification requires that order in a file (onnx/docs/IR.md, "Graphs"), but some exporters do not follow it. ONNX
Runtime therefore sorts the nodes of every graph that it loads (core/graph/graph.cc,
`PerformTopologicalSortAndCheckIsAcyclic`).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from service.compiler.importers.onnx.model import shortened
from service.compiler.importers.qdq import Operator
from service.core.errors import MalformedModel


def in_order(operators: Sequence[Operator]) -> tuple[Operator, ...]:
    """Returns `operators` sorted, so that each comes after those whose outputs it reads. If several could come next,
    the one that is first in the file does, so that a sorted graph does not change.

    Raises:
        MalformedModel: the operators form a cycle.
    """
    makers = {name: place for place, operator in enumerate(operators) for name in operator.outputs if name}
    readers: dict[int, list[int]] = {}
    # for each operator: how many of the operators whose outputs it reads are not sorted yet
    missing = [0] * len(operators)
    for place, operator in enumerate(operators):
        needed = {makers[name] for name in operator.inputs if name in makers}
        missing[place] = len(needed)
        for maker in needed:
            readers.setdefault(maker, []).append(place)
    ready = [place for place, count in enumerate(missing) if count == 0]
    result: list[Operator] = []
    while ready:
        place = heapq.heappop(ready)
        result.append(operators[place])
        for reader in readers.get(place, ()):
            missing[reader] -= 1
            if missing[reader] == 0:
                heapq.heappush(ready, reader)
    if len(result) < len(operators):
        _refuse_cycle(operators, makers, missing)
    return tuple(result)


def _refuse_cycle(operators: Sequence[Operator], makers: dict[str, int], missing: Sequence[int]) -> None:
    """Raises `MalformedModel` with the name of an operator in a cycle."""
    place = next(place for place, count in enumerate(missing) if count)
    seen: set[int] = set()
    while place not in seen:  # each remaining operator reads from another remaining one
        seen.add(place)
        place = next(makers[name] for name in operators[place].inputs if name in makers and missing[makers[name]])
    operator = operators[place]
    tensor = shortened(next(name for name in operator.outputs if name))
    raise MalformedModel(
        f"{operator.label} depends on its own output {tensor}: the graph has a cycle", op=operator.label, tensor=tensor
    )
