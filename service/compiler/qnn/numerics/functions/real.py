"""Functions of float32 values that are defined bit by bit: MLAS's polynomials, in the order of its fused kernels.

On x86-64 with FMA, they equal ONNX Runtime 1.31.1's Exp, Erf, Tanh and Sigmoid bit for bit, for every value
(`onnxruntime/core/mlas/lib`: compute.cpp, erf.cpp, tanh.cpp, logistic.cpp, and the assembly kernels for them).

Each function is written twice: in NumPy, for the oracle, and as tensor-IR expressions, for one value or for a vector.
The expressions add a product only if the product is exact, so contracting the two does not change the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax, tirx

from service.compiler.qnn.expressions import tensors
from service.compiler.qnn.numerics.formula import Scalar, pointwise
from service.compiler.qnn.numerics.scaling.fused import fma
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array

# (value, dtype) -> a variable that holds the value, so that it is computed once.
Bind = Callable[[Scalar, str], Scalar]

_ROUNDING = 12582912.0  # 3 * 2**22: adding it to a small float32 leaves only the integer part
_LOG2_E = 1.44269504088896341
_LN_2_HIGH, _LN_2_LOW = -6.93145752e-1, -1.42860677e-6  # two parts of -log(2)

_EXP_BOUNDS = (-103.9720840454, 88.7762626647950)
_EXP = (
    *(
        float.fromhex(each)
        for each in ("0x1.694p-10", "0x1.125edcp-7", "0x1.555b5ap-5", "0x1.55545p-3", "0x1.fffff6p-2")
    ),
    1.0,
    1.0,
)

_ERF_BOUND, _ERF_SPLIT = 3.925, 0.921875
_ERF_SMALL = (-5.99104969e-4, 4.99339588e-3, -2.67667342e-2, 1.12818025e-1, -3.76124859e-1, 1.28379151e-1)
_ERF_BIG = (
    1.72948930e-5,
    -3.83208680e-4,
    3.88393435e-3,
    -2.42545605e-2,
    1.06777847e-1,
    6.34846687e-1,
    1.28717512e-1,
)
_ERF_EXP = (1.38319808e-3, 8.37550033e-3, 4.16689515e-2, 1.66664466e-1, 4.99999851e-1, 1.0, 1.0)

_TANH_BOUND = 9.0
_TANH_P = (
    -2.76076847742355e-16,
    2.00018790482477e-13,
    -8.60467152213735e-11,
    5.12229709037114e-08,
    1.48572235717979e-05,
    6.37261928875436e-04,
    4.89352455891786e-03,
)
_TANH_Q = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)

_LOGISTIC_BOUND = 18.0
_LOGISTIC_P = (
    4.37031012579801e-11,
    1.15627324459942e-07,
    6.08574864600143e-05,
    8.51377133304701e-03,
    2.48287947061529e-01,
)
_LOGISTIC_Q = (
    6.10247389755681e-13,
    5.76102136993427e-09,
    6.29106785017040e-06,
    1.70198817374094e-03,
    1.16817656904453e-01,
    9.93151921023180e-01,
)


# -- in NumPy


def _exp(x: Array) -> Array:
    low, high = (np.float32(bound) for bound in _EXP_BOUNDS)
    return _exponential(np.clip(x, low, high), _EXP)


def _exponential(x: Array, coefficients: Sequence[float]) -> Array:
    """Returns 2**m * p(x - m * log(2)), where m is the nearest integer of x / log(2)."""
    power = fma(x, np.float32(_LOG2_E), np.float32(_ROUNDING)) - np.float32(_ROUNDING)
    rest = fma(power, np.float32(_LN_2_LOW), fma(power, np.float32(_LN_2_HIGH), x))
    return np.asarray(np.ldexp(_polynomial(rest, coefficients), power.astype(np.int32)))


def _erf(x: Array) -> Array:
    """Returns x + x * p(x**2) below the split, and 1 - exp(-(|x| + |x| * p(|x|))) from the split on."""
    size = np.minimum(np.abs(x), np.float32(_ERF_BOUND))
    small = fma(_polynomial(size * size, _ERF_SMALL), size, size)
    big = np.float32(1) - _exponential(-fma(_polynomial(size, _ERF_BIG), size, size), _ERF_EXP)
    return np.copysign(np.where(size >= np.float32(_ERF_SPLIT), big, small), x)


def _tanh(x: Array) -> Array:
    return _ratio(x, _TANH_BOUND, _TANH_P, _TANH_Q)


def _logistic(x: Array) -> Array:
    ratio = _ratio(x, _LOGISTIC_BOUND, _LOGISTIC_P, _LOGISTIC_Q)
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


# -- in tensor IR


class _Vector:
    """Float32 arithmetic on one value (`lanes` of 1) or on a vector. NaN operands give NaN, because minimum and maximum
    return their second operand if either operand is NaN.
    """

    def __init__(self, lanes: int, bind: Bind) -> None:
        self._lanes, self._bind = lanes, bind

    def exp(self, x: Scalar) -> Scalar:
        return self.exponential(self.within(x, *_EXP_BOUNDS), _EXP)

    def exponential(self, x: Scalar, coefficients: Sequence[float], *, normal: bool = False) -> Scalar:
        """Emits `_exponential`. The power of two is applied as two factors, the first of which rounds nothing. If the
        result is known to be `normal`, one factor is enough.
        """
        moved = self.keep(self.fma(x, self.const(_LOG2_E), self.const(_ROUNDING)))
        power = self.keep(moved - self.const(_ROUNDING))
        rest = self.keep(
            self.fma(power, self.const(_LN_2_LOW), self.fma(power, self.const(_LN_2_HIGH), x)),
        )
        bits = self._bind(tirx.reinterpret(self._dtype("int32"), moved), self._dtype("int32"))
        if normal:
            return self.keep(self.polynomial(rest, coefficients) * self._power_of_two(bits))
        half = self._bind(bits >> self.const(1, "int32"), self._dtype("int32"))
        scaled = self.polynomial(rest, coefficients) * self._power_of_two(half)
        return self.keep(scaled * self._power_of_two(bits - half))

    def _power_of_two(self, exponent: Scalar) -> Scalar:
        """Returns 2**exponent. Only the lowest 9 bits of `exponent` are used."""
        biased = (exponent << self.const(23, "int32")) + self.const(127 << 23, "int32")
        return tirx.reinterpret(self._dtype("float32"), biased)

    def erf(self, x: Scalar) -> Scalar:
        size = self.keep(tirx.min(self.const(_ERF_BOUND), self._intrinsic("llvm.fabs", x)))
        squared = self.keep(size * size)
        small = self.fma(self.polynomial(squared, _ERF_SMALL), size, size)
        exponent = self.fma(self.polynomial(size, _ERF_BIG), size, size)
        minus = self.keep(self.const(0.0) - exponent)
        # The product is exact, and the difference from it is rounded. At the bound it is 2**-25.
        big = self.const(1.0) - self.exponential(minus, _ERF_EXP, normal=True)
        either = tirx.Select(size >= self.const(_ERF_SPLIT), big, small)
        return self.keep(self._intrinsic("llvm.copysign", either, x))

    def tanh(self, x: Scalar) -> Scalar:
        return self.keep(self._ratio(x, _TANH_BOUND, _TANH_P, _TANH_Q))

    def logistic(self, x: Scalar) -> Scalar:
        moved = self._ratio(x, _LOGISTIC_BOUND, _LOGISTIC_P, _LOGISTIC_Q) + self.const(0.5)
        return self.within(moved, 0.0, 1.0)

    def _ratio(self, x: Scalar, bound: float, p: Sequence[float], q: Sequence[float]) -> Scalar:
        x = self.within(x, -bound, bound)
        squared = self.keep(x * x)
        return self.polynomial(squared, p) * x / self.polynomial(squared, q)

    def polynomial(self, x: Scalar, coefficients: Sequence[float]) -> Scalar:
        total, *rest = (self.const(value) for value in coefficients)
        for coefficient in rest:
            total = self.fma(total, x, coefficient)
        return total

    def within(self, x: Scalar, low: float, high: float) -> Scalar:
        return self.keep(tirx.max(self.const(low), self.keep(tirx.min(self.const(high), x))))

    def fma(self, a: Scalar, b: Scalar, c: Scalar) -> Scalar:
        return tensors.fma(a, b, c, self._lanes)

    def keep(self, value: Scalar) -> Scalar:
        return self._bind(value, self._dtype("float32"))

    def const(self, value: float, dtype: str = "float32") -> Scalar:
        scalar = tirx.const(value, dtype)
        return scalar if self._lanes == 1 else tirx.Broadcast(scalar, self._lanes)

    def _intrinsic(self, name: str, *operands: Scalar) -> Scalar:
        return tirx.call_llvm_pure_intrin(self._dtype("float32"), name, *operands)

    def _dtype(self, dtype: str) -> str:
        return dtype if self._lanes == 1 else f"{dtype}x{self._lanes}"


# -- both


@dataclass(frozen=True)
class Function:
    """A function of float32, in both forms.

    Attributes:
        evaluate: computes the function of an array.
        express: builds the expression for one `float32`; or, if the second argument is N, for a vector `float32xN`. The
            third argument binds values that are used more than once. `x` itself is used more than once, too.
    """

    evaluate: Callable[[Array], Array]
    express: Callable[[Scalar, int, Bind], Scalar]


FUNCTIONS: Mapping[str, Function] = {
    "erf": Function(_erf, lambda x, lanes, bind: _Vector(lanes, bind).erf(x)),
    "exp": Function(_exp, lambda x, lanes, bind: _Vector(lanes, bind).exp(x)),
    "logistic": Function(_logistic, lambda x, lanes, bind: _Vector(lanes, bind).logistic(x)),
    "tanh": Function(_tanh, lambda x, lanes, bind: _Vector(lanes, bind).tanh(x)),
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
        return pointwise(builder, f"real_{self._name}", lambda x: _in_one(FUNCTIONS[self._name], x), [x])


def _in_one(function: Function, x: Scalar) -> Scalar:
    """Returns a single expression, in which values are bound before they are read."""
    bound: list[tuple[tirx.Var, Scalar]] = []

    def bind(value: Scalar, dtype: str) -> Scalar:
        variable = tirx.Var(f"t{len(bound)}", dtype)
        bound.append((variable, value))
        return variable

    result = function.express(bind(x, "float32"), 1, bind)
    for variable, value in reversed(bound):
        result = tirx.Let(variable, value, result)
    return result
