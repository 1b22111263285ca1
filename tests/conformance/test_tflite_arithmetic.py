"""Operators that compute, compared with LiteRT in both modes, for random shapes, scales, zero points and constants."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE, MODES_OF, XNNPACK
from tests.support import litert
from tests.support.conformance import assert_equals_litert, assert_oracle_equals_litert
from tests.support.examples import examples
from tests.support.qnn_models import compile_and_run_all
from tests.support.tflite_arithmetic import ARITHMETIC, INT8_ONLY, reduction

CASES = examples(14)
MODES = (LITERT_REFERENCE, XNNPACK)


def dtypes(name: str) -> tuple[type, ...]:
    return (np.int8,) if name in INT8_ONLY else (np.int8, np.uint8)


@pytest.mark.parametrize("mode", MODES_OF["tflite"])
@pytest.mark.parametrize("name", ARITHMETIC)
def test_operator_equals_litert(name: str, mode: str) -> None:
    rng = np.random.default_rng(5)
    for case in range(CASES):
        dtype = dtypes(name)[case % len(dtypes(name))]
        assert_oracle_equals_litert(ARITHMETIC[name](rng, dtype), samples=1, numerics=mode)


def test_the_reference_kernel_sums_int8_as_uint8() -> None:
    """The reference kernel adds the bytes as unsigned numbers: -128 counts as 128, and the largest possible sum is
    stored as the byte of -1. The default kernels add signed numbers.
    """
    data = reduction("SUM", one_type=True)(np.random.default_rng(0), np.int8)
    sample = [np.full(spec.shape, -128, np.int8) for spec in import_model(data).signature.inputs]
    for mode in MODES_OF["tflite"]:
        assert_equals_litert(data, mode, [sample])
    reference, default = (oracle.run(import_model(data).module, get_mode(mode), sample)[0] for mode in MODES)
    assert (reference == -1).all()
    assert (default == -128).all()


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
