"""Tests of the fuzzer's graphs: how they are drawn, written and minimized."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fuzz.graphs.formats import Runtime, to_bytes
from tests.fuzz.graphs.graph import Graph, Operator, Tensor
from tests.fuzz.graphs.minimize import minimized
from tests.fuzz.graphs.worker import generator

FORMATS = {"onnx": "onnxruntime", "tflite": "litert-reference"}


def chain(*types: str) -> Graph:
    """Returns a chain of operators of these types, which begins at the tensor `t0`."""
    tensors = {f"t{index}": Tensor((2,), "float32") for index in range(len(types) + 1)}
    operators = tuple(Operator(kind, (f"t{index}",), (f"t{index + 1}",)) for index, kind in enumerate(types))
    return Graph("onnx", tensors, operators, ("t0",), (f"t{len(types)}",))


@pytest.mark.parametrize("name", FORMATS)
def test_a_seed_gives_one_graph(name: str) -> None:
    first, second = (to_bytes(generator(name)(np.random.default_rng(5))) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", FORMATS)
def test_most_drawn_graphs_run_in_their_runtime(name: str) -> None:
    graphs = [generator(name)(np.random.default_rng(seed)) for seed in range(12)]
    ran = 0
    for graph in graphs:
        if graph.outputs:
            Runtime(name, to_bytes(graph), FORMATS[name])
            ran += 1
    assert ran >= 9


def test_pruning_leaves_what_the_outputs_need() -> None:
    graph = chain("Abs", "Neg", "Relu").cut_behind(1)
    assert [operator.type for operator in graph.operators] == ["Abs", "Neg"]
    assert set(graph.tensors) == {"t0", "t1", "t2"}


def test_results_of_a_removed_operator_become_inputs() -> None:
    graph = chain("Abs", "Neg", "Relu").without(0)
    assert graph.inputs == ("t1",)
    assert [operator.type for operator in graph.operators] == ["Neg", "Relu"]


def test_a_finding_is_reduced_to_the_operator_that_shows_it() -> None:
    graph = minimized(chain("Abs", "Neg", "Relu", "Exp", "Log"), lambda candidate: "Relu" in candidate.operator_types)
    assert graph.operator_types == ["Relu"]
