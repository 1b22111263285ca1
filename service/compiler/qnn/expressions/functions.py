"""Functions of float32, written over the scalar operations: MLAS's polynomials, in the order of its fused kernels.

On x86-64 with FMA, they equal ONNX Runtime 1.31.1's Exp, Erf, Tanh and Sigmoid bit for bit, for every value
(`onnxruntime/core/mlas/lib`: compute.cpp, erf.cpp, tanh.cpp, logistic.cpp, and the assembly kernels for them). A
product is added to something only if the product is exact, so contracting the two does not change the result.
`numerics.functions.real` contains the same functions in NumPy, for the oracle.

NaN gives NaN, because `min` and `max` return their second operand if an operand is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

from service.compiler.qnn.expressions.ops import Ops, Value

ROUNDING = 12582912.0  # 3 * 2**22: adding it to a small float32 leaves only the integer part
LOG2_E = 1.44269504088896341
LN_2_HIGH, LN_2_LOW = -6.93145752e-1, -1.42860677e-6  # two parts of -log(2)

EXP_BOUNDS = (-103.9720840454, 88.7762626647950)
EXP = (
    *(
        float.fromhex(each)
        for each in ("0x1.694p-10", "0x1.125edcp-7", "0x1.555b5ap-5", "0x1.55545p-3", "0x1.fffff6p-2")
    ),
    1.0,
    1.0,
)

ERF_BOUND, ERF_SPLIT = 3.925, 0.921875
ERF_SMALL = (-5.99104969e-4, 4.99339588e-3, -2.67667342e-2, 1.12818025e-1, -3.76124859e-1, 1.28379151e-1)
ERF_BIG = (
    1.72948930e-5,
    -3.83208680e-4,
    3.88393435e-3,
    -2.42545605e-2,
    1.06777847e-1,
    6.34846687e-1,
    1.28717512e-1,
)
ERF_EXP = (1.38319808e-3, 8.37550033e-3, 4.16689515e-2, 1.66664466e-1, 4.99999851e-1, 1.0, 1.0)

TANH_BOUND = 9.0
TANH_P = (
    -2.76076847742355e-16,
    2.00018790482477e-13,
    -8.60467152213735e-11,
    5.12229709037114e-08,
    1.48572235717979e-05,
    6.37261928875436e-04,
    4.89352455891786e-03,
)
TANH_Q = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)

LOGISTIC_BOUND = 18.0
LOGISTIC_P = (
    4.37031012579801e-11,
    1.15627324459942e-07,
    6.08574864600143e-05,
    8.51377133304701e-03,
    2.48287947061529e-01,
)
LOGISTIC_Q = (
    6.10247389755681e-13,
    5.76102136993427e-09,
    6.29106785017040e-06,
    1.70198817374094e-03,
    1.16817656904453e-01,
    9.93151921023180e-01,
)


def exp(ops: Ops, x: Value) -> Value:
    return _exponential(ops, _within(ops, x, *EXP_BOUNDS), EXP)


def erf(ops: Ops, x: Value) -> Value:
    """Returns x + x * p(x**2) below the split, and 1 - exp(-(|x| + |x| * p(|x|))) from the split on."""
    size = _keep(ops, ops.min(_const(ops, ERF_BOUND), ops.magnitude(x)))
    squared = _keep(ops, size * size)
    small = ops.fma(_polynomial(ops, squared, ERF_SMALL), size, size)
    exponent = ops.fma(_polynomial(ops, size, ERF_BIG), size, size)
    minus = _keep(ops, _const(ops, 0.0) - exponent)
    # The product is exact, and the difference from it is rounded. At the bound it is 2**-25.
    big = _const(ops, 1.0) - _exponential(ops, minus, ERF_EXP, normal=True)
    return _keep(ops, ops.copy_sign(ops.select(size >= _const(ops, ERF_SPLIT), big, small), x))


def tanh(ops: Ops, x: Value) -> Value:
    return _keep(ops, _ratio(ops, x, TANH_BOUND, TANH_P, TANH_Q))


def logistic(ops: Ops, x: Value) -> Value:
    moved = _ratio(ops, x, LOGISTIC_BOUND, LOGISTIC_P, LOGISTIC_Q) + _const(ops, 0.5)
    return _within(ops, moved, 0.0, 1.0)


def _exponential(ops: Ops, x: Value, coefficients: Sequence[float], *, normal: bool = False) -> Value:
    """Returns 2**m * p(x - m * log(2)), where m is the nearest integer of x / log(2).

    The power of two is applied as two factors, the first of which rounds nothing. If the result is known to be
    `normal`, one factor is enough.
    """
    moved = _keep(ops, ops.fma(x, _const(ops, LOG2_E), _const(ops, ROUNDING)))
    power = _keep(ops, moved - _const(ops, ROUNDING))
    rest = _keep(ops, ops.fma(power, _const(ops, LN_2_LOW), ops.fma(power, _const(ops, LN_2_HIGH), x)))
    bits = ops.keep(ops.bits(moved, "int32"), "int32")
    if normal:
        return _keep(ops, _polynomial(ops, rest, coefficients) * _power_of_two(ops, bits))
    half = ops.keep(bits >> ops.const(1), "int32")
    scaled = _polynomial(ops, rest, coefficients) * _power_of_two(ops, half)
    return _keep(ops, scaled * _power_of_two(ops, bits - half))


def _power_of_two(ops: Ops, exponent: Value) -> Value:
    """Returns 2**exponent. Only the lowest 9 bits of `exponent` are used."""
    return ops.bits((exponent << ops.const(23)) + ops.const(127 << 23), "float32")


def _ratio(ops: Ops, x: Value, bound: float, p: Sequence[float], q: Sequence[float]) -> Value:
    """Returns x * p(x**2) / q(x**2), for x clamped to [-bound, bound]."""
    x = _within(ops, x, -bound, bound)
    squared = _keep(ops, x * x)
    return _polynomial(ops, squared, p) * x / _polynomial(ops, squared, q)


def _polynomial(ops: Ops, x: Value, coefficients: Sequence[float]) -> Value:
    """Evaluates a polynomial, highest power first."""
    total, *rest = (_const(ops, value) for value in coefficients)
    for coefficient in rest:
        total = ops.fma(total, x, coefficient)
    return total


def _within(ops: Ops, x: Value, low: float, high: float) -> Value:
    return _keep(ops, ops.max(_const(ops, low), _keep(ops, ops.min(_const(ops, high), x))))


def _keep(ops: Ops, x: Value) -> Value:
    return ops.keep(x, "float32")


def _const(ops: Ops, value: float) -> Value:
    return ops.const(value, "float32")
