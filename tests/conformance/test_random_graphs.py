"""Random quantized graphs are built and compared with their runtime. These are a few of the graphs of `python -m
tests.fuzz.graphs`.

The seeds differ from the first seeds of that command, so that the test and the command draw different graphs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.fuzz.graphs.judge import Judge
from tests.fuzz.graphs.worker import generator

FIRST = 1_000_000
MODES = [
    ("onnx", "onnxruntime"),
    ("tflite", "litert-reference"),
    ("tflite", "xnnpack"),
    ("pieces", "litert-reference"),
    ("pieces", "xnnpack"),
]


@pytest.fixture(scope="module", params=MODES, ids="-".join)
def drawn(request: pytest.FixtureRequest) -> Iterator[tuple[str, Judge]]:
    name, numerics = request.param
    judge = Judge(numerics)
    yield name, judge
    judge.close()


def differences(name: str, judge: Judge, seeds: range) -> list[str]:
    """Returns the findings for the graphs of `seeds`."""
    found = []
    for seed in seeds:
        graph = generator(name)(np.random.default_rng(seed))
        if graph.inputs and graph.outputs and judge.is_valid(graph):
            verdict = judge(graph)
            if verdict.is_finding:
                found.append(f"seed {seed}: {verdict.outcome}: {verdict.text}")
    return found


def test_a_graph_is_equal_or_refused(drawn: tuple[str, Judge]) -> None:
    assert not differences(*drawn, range(FIRST, FIRST + 1))


@pytest.mark.slow
def test_more_graphs_are_equal_or_refused(drawn: tuple[str, Judge]) -> None:
    assert not differences(*drawn, range(FIRST + 4, FIRST + 104))
