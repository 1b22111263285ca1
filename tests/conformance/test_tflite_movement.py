"""Operators that move elements, compared with LiteRT in both modes, for random shapes and parameters."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE
from tests.support import litert
from tests.support.conformance import assert_oracle_equals_litert
from tests.support.examples import examples
from tests.support.litert import MODES
from tests.support.qnn_models import compile_and_run_all
from tests.support.tflite_movement import MOVEMENTS

CASES = examples(15)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MOVEMENTS)
def test_movement_equals_litert(name: str, mode: str) -> None:
    rng = np.random.default_rng(5)
    for case in range(CASES):
        dtype = (np.int8, np.uint8, np.float32)[case % 3]
        assert_oracle_equals_litert(MOVEMENTS[name](rng, dtype), samples=1, numerics=mode)


@pytest.mark.parametrize("name", MOVEMENTS)
def test_compiled_movement_equals_the_oracle(name: str) -> None:
    data = MOVEMENTS[name](np.random.default_rng(11), np.int8)
    module = import_model(data).module
    inputs = litert.random_inputs(litert.interpreter(data), np.random.default_rng(0))
    expected = oracle.run(module, get_mode(LITERT_REFERENCE), inputs)
    for ours, theirs in zip(
        compile_and_run_all(canonicalize(module, get_mode(LITERT_REFERENCE)), inputs), expected, strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
