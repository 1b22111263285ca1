"""Powers of float32: for numbers of every magnitude, generated code gives the oracle's bits."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.numerics.functions.power import evaluate
from service.compiler.qnn.operation import IllTyped
from service.core.builds.numerics import ONNXRUNTIME
from service.core.target import detect_host
from tests.support.qnn_models import module_of
from tests.support.real_values import of_every_size
from tests.support.selected import run_selected

EXPONENTS = (-0.75, -0.5, 0.3125, 2.5, -7.25, 300.5, -3.0, 0.0, 1.0, 5.0, 7.0)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_a_compiled_power_has_the_oracles_bits(exponent: float, tmp_path: Path) -> None:
    x = of_every_size()
    module = module_of([(x.shape, "float32")], lambda emit, inputs: emit(ops.real_power(inputs[0], exponent=exponent)))
    _, (got,) = run_selected(module, detect_host().target, ONNXRUNTIME, [x], tmp_path)
    expected = oracle.run(module, get_mode(ONNXRUNTIME), [x])[0]
    np.testing.assert_array_equal(got, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(expected[numbers]))


@pytest.mark.parametrize("exponent", [each for each in EXPONENTS if abs(each) < 10])
def test_a_power_is_within_a_few_units_in_the_last_place(exponent: float) -> None:
    x = np.exp(np.linspace(-8, 8, 20011)).astype(np.float32)
    exact = x.astype(np.float64) ** exponent
    with np.errstate(over="ignore"):
        error = np.abs(evaluate(x, exponent) - exact) / np.spacing(exact.astype(np.float32))
    roundings = abs(exponent) + 2  # of products, each of which is off by at most one unit
    assert np.all(error <= (3 if exponent % 1 else roundings))


@pytest.mark.parametrize(
    ("exponent", "expected"), [(-0.75, (math.inf, 0.0, math.nan)), (0.75, (0.0, math.inf, math.nan))]
)
def test_limits(exponent: float, expected: tuple[float, float, float]) -> None:
    x = np.array([0, math.inf, math.nan], np.float32)
    module = module_of([((3,), "float32")], lambda emit, inputs: emit(ops.real_power(inputs[0], exponent=exponent)))
    np.testing.assert_array_equal(oracle.run(module, get_mode(ONNXRUNTIME), [x])[0], np.array(expected, np.float32))


@pytest.mark.parametrize("exponent", [-4.0, 8.0, math.inf, math.nan, 0.1, 2.0**21 + 0.5])
def test_an_exponent_that_is_not_supported(exponent: float) -> None:
    with pytest.raises(IllTyped, match="is not supported"):
        module_of([((4,), "float32")], lambda emit, inputs: emit(ops.real_power(inputs[0], exponent=exponent)))


def test_a_power_needs_float32() -> None:
    with pytest.raises(IllTyped, match="float32, not uint8"):
        module_of([((4,), "uint8")], lambda emit, inputs: emit(ops.real_power(inputs[0], exponent=0.5)))
