"""The connections between the layers of a model with kernel calls, for reports.

A kernel call is one layer. The operators between two kernel calls that no kernel computes are one layer together, as in
the report of times.
"""

from __future__ import annotations

from collections.abc import Collection

from tvm import relax

from service.compiler.qnn import graph
from service.compiler.select.selection import Selection

_CALLS = ("relax.call_dps_packed", "relax.call_inplace_packed")
_NAMES_ONLY = ("relax.reshape",)  # an operator that only gives an existing tensor another shape


def edges_of(selection: Selection) -> list[list[int]]:
    """Returns the pairs of layers of which the second reads a result of the first, in the order of execution.

    The layer of kernel call `i` has the number 2 * i + 1, and the operators before it have the number 2 * i.
    """
    left = {operator["place"] for operator in selection.plain}
    edges: dict[tuple[int, int], None] = {}
    sources: dict[relax.Var, Collection[int]] = {}
    calls = 0
    for var, value in graph.bindings(graph.main_of(selection.module)):
        read = dict.fromkeys(layer for operand in graph.variables(value) for layer in sources.get(operand, ()))
        layer = 2 * calls
        if _is_kernel(value):
            layer, calls = layer + 1, calls + 1
        elif _is_name(value) or calls not in left:
            sources[var] = tuple(read)
            continue
        edges.update(((source, layer), None) for source in read if source != layer)
        sources[var] = (layer,)
    return [list(edge) for edge in sorted(edges)]


def _is_kernel(value: relax.Expr) -> bool:
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") in _CALLS


def _is_name(value: relax.Expr) -> bool:
    return not isinstance(value, relax.Call) or getattr(value.op, "name", "") in _NAMES_ONLY
