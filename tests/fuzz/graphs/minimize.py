"""Reduces a graph that shows a finding."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.fuzz.graphs.graph import Graph


def minimized(graph: Graph, shows_it: Callable[[Graph], bool], seconds: float = 120.0) -> Graph:
    """Returns the smallest graph for which `shows_it` is still true. Searches for `seconds`."""
    end = time.monotonic() + seconds
    while True:
        for candidate in graph.smaller():
            if time.monotonic() > end:
                return graph
            is_smaller = len(candidate.operators) < len(graph.operators) or len(candidate.outputs) < len(graph.outputs)
            if candidate.inputs and candidate.outputs and is_smaller and shows_it(candidate):
                graph = candidate
                break
        else:
            return graph
