"""Passes for a target leave the simulated form unchanged."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.qnn import oracle
from service.compiler.qnn.decompose import decompose
from service.compiler.qnn.legalize import legalize
from service.compiler.qnn.simulate import simulate
from service.compiler.targets import OperandTypes
from tests.support.simulated_layers import MODE, inputs_of, layer


@pytest.mark.parametrize("kind", ["conv2d", "conv2d_transpose"])
def test_passes_for_a_target_do_not_change_the_simulated_form(kind: str) -> None:
    module = simulate(layer(kind)).module
    passed = legalize(decompose(module), OperandTypes("int8", "int8"))
    inputs = inputs_of(module, 0)
    for ours, theirs in zip(oracle.run(passed, MODE, inputs), oracle.run(module, MODE, inputs), strict=True):
        np.testing.assert_array_equal(ours, theirs)
