"""Operators that compute, against LiteRT in both modes: random shapes, scales, zero points and constants."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.numerics import get_mode
from service.core.numerics import LITERT_REFERENCE, MODES_OF
from tests.support import litert
from tests.support.conformance import assert_oracle_equals_litert
from tests.support.qnn_models import compile_and_run_all
from tests.support.tflite_arithmetic import ARITHMETIC, INT8_ONLY, reduction

CASES = 14


def dtypes(name: str) -> tuple[type, ...]:
    return (np.int8,) if name in INT8_ONLY else (np.int8, np.uint8)


@pytest.mark.parametrize("mode", MODES_OF["tflite"])
@pytest.mark.parametrize("name", ARITHMETIC)
def test_operator_equals_litert(name: str, mode: str) -> None:
    rng = np.random.default_rng(5)
    for case in range(CASES):
        dtype = dtypes(name)[case % len(dtypes(name))]
        if (name, mode, dtype) == ("SUM", LITERT_REFERENCE, np.int8):
            continue  # see below
        assert_oracle_equals_litert(ARITHMETIC[name](rng, dtype), samples=1, numerics=mode)


def test_litert_sums_int8_as_if_it_were_uint8() -> None:
    """Its reference kernel, that is; once this fails, `FixedPointSum` says too much."""
    data = reduction("SUM", one_type=True)(np.random.default_rng(0), np.int8)
    reference = litert.interpreter(data)
    inputs = [np.full(detail["shape"], -1, np.int8) for detail in reference.get_input_details()]
    wrong, right = litert.run(reference, inputs)[0], litert.run(litert.interpreter(data, reference=False), inputs)[0]
    assert (wrong != right).any()
    np.testing.assert_array_equal(oracle.run(import_model(data).module, get_mode(LITERT_REFERENCE), inputs)[0], right)


@pytest.mark.parametrize("mode", MODES_OF["tflite"])
@pytest.mark.parametrize("name", ARITHMETIC)
def test_compiled_operator_equals_the_oracle(name: str, mode: str) -> None:
    rng = np.random.default_rng(11)
    data = ARITHMETIC[name](rng, dtypes(name)[-1 if mode == LITERT_REFERENCE else 0])
    module = import_model(data).module
    inputs = litert.random_inputs(litert.interpreter(data), rng)
    expected = oracle.run(module, get_mode(mode), inputs)
    compiled = compile_and_run_all(canonicalize(module, get_mode(mode)), inputs)
    for ours, theirs in zip(compiled, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
