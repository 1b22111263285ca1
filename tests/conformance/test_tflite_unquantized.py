"""Operators on values that are not quantized: integers and booleans equal LiteRT's, and real values within rounding."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE
from tests.support import evidence, litert
from tests.support.qnn_models import compile_and_run_each
from tests.support.tflite_unquantized import CASES, Case

# LiteRT computes functions with float32 routines of the C library. Sums have at most 36 products of values up to 50.
RELATIVE, ABSOLUTE = 2e-6, 2e-5


def _samples(case: Case, data: bytes) -> tuple[list[list[np.ndarray]], list[list[np.ndarray]]]:
    """Returns inputs and LiteRT's outputs. Its reference kernels lack some operators."""
    try:
        loaded = litert.interpreter(data)
    except ValueError:
        loaded = litert.interpreter(data, reference=False)
    rng = np.random.default_rng(1)
    inputs = [list(sample) for sample in case.samples or [litert.random_inputs(loaded, rng) for _ in range(2)]]
    return inputs, [litert.run(loaded, sample) for sample in inputs]


@pytest.mark.parametrize("name", CASES)
def test_it_equals_litert(name: str) -> None:
    data = CASES[name].model()
    inputs, expected = _samples(CASES[name], data)
    imported = import_model(data)
    actual = [oracle.run(imported.module, get_mode(LITERT_REFERENCE), sample) for sample in inputs]
    evidence.record(imported, LITERT_REFERENCE, actual, expected)
    for results, wanted in zip(actual, expected, strict=True):
        for ours, theirs in zip(results, wanted, strict=True):
            if ours.dtype == np.float32:
                np.testing.assert_allclose(ours, theirs, RELATIVE, ABSOLUTE)
            else:
                np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_compiled_code_equals_the_oracle(name: str) -> None:
    data = CASES[name].model()
    inputs, _ = _samples(CASES[name], data)
    module, mode = import_model(data).module, get_mode(LITERT_REFERENCE)
    compiled = compile_and_run_each(canonicalize(module, mode), inputs)
    for sample, results in zip(inputs, compiled, strict=True):
        for ours, theirs in zip(results, oracle.run(module, mode, sample), strict=True):
            np.testing.assert_allclose(ours, theirs, 2e-7)  # C's functions and NumPy's differ in float64
