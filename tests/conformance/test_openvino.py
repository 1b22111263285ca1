"""Models that NNCF quantized and OpenVINO 2026.4.1 ran. The oracle and the kernels give OpenVINO's results."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from service.compiler.importers.auto import import_model
from service.compiler.qnn import graph, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.transposes import move_transposes
from service.core.builds.numerics import OPENVINO
from service.core.models.arrays import Array
from service.core.target import TARGETS, detect_host
from tests.support import evidence
from tests.support.openvino_models import NAMES, answers_of, packed
from tests.support.selected import run_selected

HERE = [target for target in TARGETS if target.architecture == "x86_64" and target.runs_on(detect_host())]
# Outputs that are computed in integers up to the last layer equal OpenVINO's bit for bit, and so do those of a single
# float operation after it. Networks with other float layers differ by a few units in the last place.
REAL = 2.0**-20


def differences(name: str) -> list[float]:
    """Returns the largest difference of each output, as a part of its largest magnitude."""
    inputs, expected = answers_of(name)
    imported = import_model(packed(name))
    answers = oracle.run_all(imported.module, get_mode(OPENVINO), [[sample] for sample in inputs])
    evidence.record(imported, OPENVINO, answers, expected)
    return [
        float(np.abs(one - other).max() / np.abs(other).max())
        for ours, theirs in zip(answers, expected, strict=True)
        for one, other in zip(ours, theirs, strict=True)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_the_oracle_gives_openvinos_results(name: str) -> None:
    assert max(differences(name)) <= REAL


EQUAL = ("inception_mixed", "inception_performance", "padded_mixed", "padded_performance", "rows_mixed")


@pytest.mark.parametrize("name", EQUAL)
def test_integers_decide_every_bit(name: str) -> None:
    assert max(differences(name)) == 0


def test_layers_are_computed_in_integers() -> None:
    function = graph.main_of(import_model(packed("residual_mixed")).module)
    names = Counter(operation.name for _, _, operation in graph.operations(function) if operation is not None)
    assert names["qnn.conv2d"] == 4
    assert names["qnn.real_conv2d"] == 0


@pytest.mark.parametrize("name", ["inception_mixed", "dense_performance", "attention_int4_asym", "shuffle_mixed"])
def test_kernels_equal_the_oracle(name: str, tmp_path: Path) -> None:
    inputs, _ = answers_of(name)
    imported = import_model(packed(name))
    expected: list[Array] = oracle.run(imported.module, get_mode(OPENVINO), [inputs[0]])
    _, outputs = run_selected(move_transposes(imported.module), HERE[-1], OPENVINO, [inputs[0]], tmp_path)
    for ours, theirs in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
