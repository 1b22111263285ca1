"""Functions of float32 values that are defined bit by bit (`expressions.functions`), in NumPy for the oracle, and their
formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from service.compiler.qnn.expressions import functions
from service.compiler.qnn.expressions.ops import Ops, Value
from service.compiler.qnn.expressions.tensors import BoundOps, in_one
from service.compiler.qnn.numerics.formula import Scalar, pointwise
from service.compiler.qnn.numerics.scaling.fused import fma
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array


def _exp(x: Array) -> Array:
    low, high = (np.float32(bound) for bound in functions.EXP_BOUNDS)
    return _exponential(np.clip(x, low, high), functions.EXP)


def _exponential(x: Array, coefficients: Sequence[float]) -> Array:
    """Returns 2**m * p(x - m * log(2)), where m is the nearest integer of x / log(2)."""
    power = fma(x, np.float32(functions.LOG2_E), np.float32(functions.ROUNDING)) - np.float32(functions.ROUNDING)
    rest = fma(power, np.float32(functions.LN_2_LOW), fma(power, np.float32(functions.LN_2_HIGH), x))
    return np.asarray(np.ldexp(_polynomial(rest, coefficients), power.astype(np.int32)))


def _erf(x: Array) -> Array:
    """Returns x + x * p(x**2) below the split, and 1 - exp(-(|x| + |x| * p(|x|))) from the split on."""
    size = np.minimum(np.abs(x), np.float32(functions.ERF_BOUND))
    small = fma(_polynomial(size * size, functions.ERF_SMALL), size, size)
    big = np.float32(1) - _exponential(-fma(_polynomial(size, functions.ERF_BIG), size, size), functions.ERF_EXP)
    return np.copysign(np.where(size >= np.float32(functions.ERF_SPLIT), big, small), x)


def _tanh(x: Array) -> Array:
    return _ratio(x, functions.TANH_BOUND, functions.TANH_P, functions.TANH_Q)


def _logistic(x: Array) -> Array:
    ratio = _ratio(x, functions.LOGISTIC_BOUND, functions.LOGISTIC_P, functions.LOGISTIC_Q)
    return np.clip(ratio + np.float32(0.5), np.float32(0), np.float32(1))


def _ratio(x: Array, bound: float, p: Sequence[float], q: Sequence[float]) -> Array:
    """Returns x * p(x**2) / q(x**2), for x clamped to [-bound, bound]."""
    x = np.clip(x, np.float32(-bound), np.float32(bound))
    squared = x * x
    return np.asarray(_polynomial(squared, p) * x / _polynomial(squared, q))


def _polynomial(x: Array, coefficients: Sequence[float]) -> Array:
    """Evaluates a polynomial, highest power first."""
    first, *rest = (np.float32(value) for value in coefficients)
    total = np.full_like(x, first)
    for coefficient in rest:
        total = fma(total, x, coefficient)
    return total


@dataclass(frozen=True)
class Function:
    """A function of float32, in both forms.

    Attributes:
        evaluate: computes the function of an array.
        express: builds the expression, given the operations and `x`, which is used more than once.
    """

    evaluate: Callable[[Array], Array]
    express: Callable[[Ops, Value], Value]


FUNCTIONS: Mapping[str, Function] = {
    "erf": Function(_erf, functions.erf),
    "exp": Function(_exp, functions.exp),
    "logistic": Function(_logistic, functions.logistic),
    "tanh": Function(_tanh, functions.tanh),
}


class RealFunction:
    """The formula of `qnn.real_exp` and the other functions of real values."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.summary = f"{name} of float32, by MLAS's polynomial: equal to ONNX Runtime's, bit for bit"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        with np.errstate(all="ignore"):  # infinities and NaN are valid
            return FUNCTIONS[self._name].evaluate(x)

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        express = FUNCTIONS[self._name].express

        def compute(x: Scalar) -> Scalar:
            return in_one(lambda bind: express(BoundOps(bind=bind), bind(x, "float32")))

        return pointwise(builder, f"real_{self._name}", compute, [x])
