"""Programs that ExecuTorch 1.5.1 ran with its XNNPACK delegate. The oracle and the kernels give its results."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from service.compiler.importers.auto import import_model
from service.compiler.qnn import graph, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.transposes import move_transposes
from service.core.builds.numerics import EXECUTORCH
from service.core.target import TARGETS, detect_host
from tests.support.executorch_programs import NAMES, answers_of, program
from tests.support.selected import run_selected

HERE = [target for target in TARGETS if target.architecture == "x86_64" and target.runs_on(detect_host())]
# Float layers add in another order than XNNPACK, and compute functions such as exp by other polynomials.
REAL = 2.0**-20
# Programs whose outputs are decided by integers, up to a dequantization.
EQUAL = (
    *("attention", "dense", "dynamic_dense", "dynamic_pixels", "four_bits", "joined", "largest", "normalized"),
    *("product", "residual", "rows", "sum", "transposed"),
)


def differences(name: str) -> list[float]:
    """Returns the largest difference of each output, as a part of its largest magnitude."""
    inputs, expected = answers_of(name)
    results = oracle.run_all(import_model(program(name)).module, get_mode(EXECUTORCH), inputs)
    return [
        float(np.abs(one - other).max() / np.abs(other).max())
        for ours, theirs in zip(results, expected, strict=True)
        for one, other in zip(ours, theirs, strict=True)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_the_oracle_gives_executorchs_results(name: str) -> None:
    assert max(differences(name)) <= (0 if name in EQUAL else REAL)


def test_layers_are_computed_in_integers() -> None:
    function = graph.main_of(import_model(program("residual")).module)
    names = Counter(operation.name for _, _, operation in graph.operations(function) if operation is not None)
    assert names["qnn.conv2d"] == 3
    assert names["qnn.dense"] == 1
    assert not any("real" in name for name in names)


@pytest.mark.parametrize("name", ["residual", "dynamic_dense"])
def test_kernels_equal_the_oracle(name: str, tmp_path: Path) -> None:
    inputs, _ = answers_of(name)
    imported = import_model(program(name))
    expected = oracle.run(imported.module, get_mode(EXECUTORCH), inputs[0])
    _, outputs = run_selected(move_transposes(imported.module), HERE[-1], EXECUTORCH, inputs[0], tmp_path)
    for ours, theirs in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
