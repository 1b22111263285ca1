"""Tracing formulas, and computing them in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.compiler.qnn.expressions import formula as f
from service.compiler.qnn.expressions.formula import InvalidFormula
from service.compiler.qnn.expressions.tracing import Expression, trace
from service.compiler.qnn.numerics.defined import evaluated
from service.core.models.arrays import Array

VALUES = np.array([0.0, -0.0, 0.25, -1.5, 2.5, 3.5, -2.5, 100.0, -1e30, np.inf, -np.inf, np.nan], np.float32)
floats = st.floats(width=32)
ints = st.integers(-(1 << 31), (1 << 31) - 1)


def computed(formula: Callable[..., Any], *operands: Array, result: str = "float32") -> Array:
    return evaluated(trace(formula, [each.dtype.name for each in operands], result=result), operands)


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        (lambda x: x + 1, lambda x: x + np.float32(1)),
        (lambda x: 1 - x, lambda x: np.float32(1) - x),
        (lambda x: -x * 3, lambda x: -x * np.float32(3)),
        (lambda x: 1 / x, lambda x: np.float32(1) / x),
        (abs, np.abs),
        (f.floor, np.floor),
        (f.sqrt, np.sqrt),
        (lambda x: f.where(x < 0, 0, x), lambda x: np.where(x < 0, np.float32(0), x)),
        (lambda x: f.clip(x, -1, 2), lambda x: np.clip(x, np.float32(-1), np.float32(2))),
        (lambda x: f.where(x == 2.5, 7, x), lambda x: np.where(x == 2.5, np.float32(7), x)),
        (lambda x: f.where(x >= 2.5, x, 0), lambda x: np.where(x >= 2.5, x, np.float32(0))),
        (lambda x: f.maximum(x, 1), lambda x: np.where(x > 1, x, np.float32(1))),
        (lambda x: f.minimum(x, 1), lambda x: np.where(x < 1, x, np.float32(1))),
        (
            lambda x: f.to_float(f.round_even(x)),
            lambda x: np.rint(np.clip(np.nan_to_num(x, nan=-1e30), -(2.0**30), 2.0**30)),
        ),
    ],
)
def test_a_formula_of_reals_computes_as_numpy(formula: Callable[..., Any], expected: Callable[..., Any]) -> None:
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(computed(formula, VALUES), np.asarray(expected(VALUES), np.float32))


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        (f.exp, math.exp),
        (f.erf, math.erf),
        (f.tanh, math.tanh),
        (f.log, lambda x: math.log(x) if x > 0 else None),
        (f.sigmoid, lambda x: 1 / (1 + math.exp(-x))),
    ],
)
def test_a_function_is_within_a_few_units_of_the_exact_value(formula: Any, expected: Callable[[float], float]) -> None:
    values = np.linspace(-8, 8, 1001, dtype=np.float32)
    for value, found in zip(values, computed(formula, values), strict=True):
        exact = expected(float(value))
        assert exact is None or found == pytest.approx(exact, rel=1e-6, abs=1e-7)


@given(floats, floats, floats)
def test_fma_rounds_once(a: float, b: float, c: float) -> None:
    operands = [np.array([each], np.float32) for each in (a, b, c)]
    found = computed(lambda a, b, c: f.fma(a, b, c), *operands)
    if all(map(math.isfinite, (a, b, c))) and max(abs(a * b), abs(c)) < 1e30:
        exact = np.longdouble(a) * np.longdouble(b) + np.longdouble(c)
        assert abs(np.longdouble(found[0]) - exact) <= np.spacing(np.abs(found[0])) / 2 * (1 + 1e-6)


@given(ints, ints, st.integers(1, 31))
def test_a_formula_of_integers_computes_as_gemmlowp(x: int, significand: int, exponent: int) -> None:
    operands = [np.array([each], np.int32) for each in (x, significand)]
    high = (x * significand + (1 << 30)) >> 31
    if -(1 << 31) <= high < 1 << 31:
        assert computed(f.multiply_high, *operands, result="int32")[0] == high
    half = (1 << exponent) // 2
    away = -((-x + half) >> exponent) if x < 0 else (x + half) >> exponent
    assert computed(lambda q: f.divide_by_power(q, exponent), operands[0], result="int32")[0] == away


def test_a_shared_value_is_computed_once() -> None:
    kept: list[str] = []

    class Counting:
        def const(self, value: float, dtype: str = "int32") -> float:
            return value

        def keep(self, x: float, dtype: str = "int32") -> float:
            kept.append(dtype)
            return x

    def formula(x: f.Scalar) -> f.Scalar:
        half = x * 0.5
        return half + half * half

    assert trace(formula, ["float32"], result="float32").express(Counting(), [6.0]) == 12.0  # type: ignore[arg-type]
    assert kept == ["float32"]


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        (lambda x: x if x > 0 else 0, "not if"),
        (lambda x: x > 0, "must return float32, not bool"),
        (lambda x: None, "must return float32, not NoneType"),
        (lambda x: f.round_even(x), "must return float32, not int32"),
        (lambda x: x + f.round_even(x), "float32 and int32"),
        (lambda x: x << 1, "takes int32, not float32"),
        (lambda x: f.where(x, 1, 2), "must be a comparison"),
        (lambda x: (x > 0) + 1, "cannot be applied to a comparison"),
        (lambda x: x + True, "cannot compute with True"),
        (lambda x: x == "a", "cannot be compared with 'a'"),
        (lambda x: x < math.nan, "always false"),
        (lambda x: f.to_float(f.round_even(x) << 32), "by 0 to 31 bits, not by 32"),
        (lambda x: f.to_float(f.round_even(x) + (1 << 31)), "is not an int32 number"),
        (lambda x: sum((x * n for n in range(5000)), x), "more than 4096 steps"),
    ],
)
def test_what_cannot_be_expressed_is_refused(formula: Callable[..., Any], message: str) -> None:
    with pytest.raises(InvalidFormula, match=message.replace("(", r"\(")):
        trace(formula, ["float32"], result="float32")


def test_a_value_of_another_formula_is_refused() -> None:
    leaked: list[f.Scalar] = []

    def leak(x: f.Scalar) -> f.Scalar:
        leaked.append(x)
        return x

    trace(leak, ["float32"], result="float32")
    with pytest.raises(InvalidFormula, match="a value of another formula"):
        evaluated(trace(lambda x: x + leaked[0], ["float32"], result="float32"), [VALUES])


def test_a_long_formula_is_one_that_grows_without_variables() -> None:
    def squared_sums(steps: int) -> Expression:
        def formula(x: f.Scalar) -> f.Scalar:
            for _ in range(steps):
                x = x * x + x
            return x

        return trace(formula, ["float32"], result="float32")

    assert [squared_sums(steps).is_long for steps in (1, 3, 12)] == [False, False, True]
    assert not trace(lambda x: f.tanh(f.tanh(x)) + f.erf(x), ["float32"], result="float32").is_long
