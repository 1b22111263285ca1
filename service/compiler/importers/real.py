"""Functions of real values, for all importers.

Between their layers, transformers and modern convolution networks compute in float32 and round each step once. `Real`
does the same with MLAS's formulas, in the order of its AVX-512 kernels. Softmax and the activations therefore equal
those of ONNX Runtime bit for bit. The results of other frameworks differ by at most a few units in the last place.

`Wide` computes in float64 and rounds once. `Wide` is used for functions without a float32 definition here, and for sums
along axes other than the last ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax

from service.compiler.qnn import ops
from service.compiler.qnn.coverage import INSIDE
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.ops.real import LANES

Emit = Callable[[relax.Expr, str], relax.Expr]


class Real:
    """Float32 arithmetic within one operator.

    The functions below take a `Real` and return a call that is not bound yet. The call computes the operator's result
    or a part of the result.

    Attributes:
        x: the operand, float32.
    """

    def __init__(self, emit: Emit, x: relax.Expr) -> None:
        """`emit` binds an expression. Its second argument becomes part of the variable's name."""
        self._emit, self.x = emit, x

    def __call__(self, expr: relax.Expr) -> relax.Expr:
        return self._emit(expr, INSIDE)

    def call(self, make: Callable[..., relax.Call], *operands: relax.Expr | float) -> relax.Call:
        return make(*(relax.const(np.array(x, np.float32)) if isinstance(x, float) else x for x in operands))

    def apply(self, make: Callable[..., relax.Call], *operands: relax.Expr | float) -> relax.Expr:
        return self(self.call(make, *operands))

    def in_float64(self, make: Callable[..., relax.Call], *operands: relax.Expr) -> relax.Call:
        """Returns `make` applied to the operands in float64, rounded to float32."""
        wide = [self(relax.op.astype(x, "float64")) for x in operands]
        return relax.op.astype(self(make(*wide)), "float32")

    def total(self, x: relax.Expr, axes: Sequence[int], *, keepdims: bool = True) -> relax.Call:
        """Returns the sum of float32 values along `axes`. If these are the last axes, the values are added in lanes;
        otherwise they are added in float64 and the sum is rounded.
        """
        shape, axes = shape_of(x), sorted(axes)
        left = [1 if axis in axes else dim for axis, dim in enumerate(shape) if keepdims or axis not in axes]
        if axes != list(range(len(shape) - len(axes), len(shape))):
            return self.in_float64(lambda wide: relax.op.sum(wide, axis=axes, keepdims=keepdims), x)
        rows = x
        if len(axes) > 1:
            rows = self(relax.op.reshape(x, (*shape[: axes[0]], math.prod(shape[axes[0] :]))))
        total = ops.real_sum(rows, axes=[axes[0]], order=LANES)
        plain = keepdims and len(axes) == 1
        return total if plain else relax.op.reshape(self(total), left)

    def mean(self, x: relax.Expr, axes: Sequence[int], *, keepdims: bool = True) -> relax.Call:
        count = math.prod(shape_of(x)[axis] for axis in axes)
        return self.call(relax.op.divide, self(self.total(x, axes, keepdims=keepdims)), float(count))


class Wide:
    """Float64 arithmetic within one operator.

    Attributes:
        x: the operand, float64.
    """

    def __init__(self, emit: Emit, x: relax.Expr) -> None:
        """`x` is float32."""
        self._emit = emit
        self.x = self.widened(x)

    def __call__(self, expr: relax.Expr) -> relax.Expr:
        return self._emit(expr, "wide")

    def widened(self, x: relax.Expr) -> relax.Expr:
        """Returns `x` in float64."""
        return self(relax.op.astype(x, "float64"))

    def apply(self, make: Callable[..., relax.Call], *operands: relax.Expr | float) -> relax.Expr:
        return self(make(*(relax.const(x, "float64") if isinstance(x, float) else x for x in operands)))

    def rounded(self, x: relax.Expr) -> relax.Expr:
        """Rounds to float32."""
        return self._emit(relax.op.astype(x, "float32"), "")


Function = Callable[[Real], relax.Call]
WideFunction = Callable[[Wide], relax.Expr]


def of_relax(make: Callable[[relax.Expr], relax.Call]) -> Function:
    """Returns a function that computes a Relax operator in float64."""
    return lambda real: real.in_float64(make, real.x)


def in_float64(of: WideFunction) -> Function:
    def function(real: Real) -> relax.Call:
        wide = Wide(lambda expr, _: real(expr), real.x)
        return relax.op.astype(of(wide), "float32")

    return function


def of_float32(name: str) -> Function:
    """Returns a function of `ops.real_function`."""
    return lambda real: ops.real_function(name, real.x)


def logistic(real: Real) -> relax.Call:
    """Returns 1 / (1 + exp(-x)) with a small relative error. (MLAS's own logistic has only a small absolute error.)"""
    grown = real(ops.real_function("exp", real.apply(relax.op.negative, real.x)))
    return real.call(relax.op.divide, 1.0, real.apply(relax.op.add, grown, 1.0))


def silu(real: Real) -> relax.Call:
    return real.call(relax.op.multiply, real.x, real(logistic(real)))


def hard_swish(real: Real) -> relax.Call:
    return real.call(relax.op.divide, real.apply(relax.op.multiply, real.x, _gate(real)), 6.0)


def hard_sigmoid(real: Real) -> relax.Call:
    return real.call(relax.op.divide, _gate(real), 6.0)


def _gate(real: Real) -> relax.Expr:
    """Returns x + 3, clamped to 0 … 6."""
    moved = real.apply(relax.op.add, real.x, 3.0)
    return real.apply(relax.op.minimum, real.apply(relax.op.maximum, moved, 0.0), 6.0)


def sloped(real: Real, slope: relax.Expr) -> relax.Call:
    """Returns x, or x * slope if x is negative."""
    below = real.apply(relax.op.multiply, real.x, slope)
    return real.call(relax.op.where, real.apply(relax.op.less, real.x, 0.0), below, real.x)


def elu(wide: Wide, alpha: float = 1.0) -> relax.Expr:
    below = wide.apply(relax.op.subtract, wide.apply(relax.op.exp, wide.apply(relax.op.minimum, wide.x, 0.0)), 1.0)
    scaled = below if alpha == 1.0 else wide.apply(relax.op.multiply, below, alpha)
    return wide.apply(relax.op.where, wide.apply(relax.op.less, wide.x, 0.0), scaled, wide.x)


def rsqrt(real: Real) -> relax.Call:
    return real.call(relax.op.divide, 1.0, real.apply(relax.op.sqrt, real.x))


def gelu(real: Real, *, approximate: bool) -> relax.Call:
    """Returns x / 2 * (1 + erf(x / sqrt(2))), or its approximation by tanh (Hendrycks and Gimpel 2016). The steps are
    in the order of `mlas/lib/gelu.cpp`, or of `contrib_ops/cpu/bert/fast_gelu.cc` for the approximation.
    """
    half = real.apply(relax.op.multiply, real.x, 0.5)
    if approximate:
        cubic = real.apply(relax.op.multiply, real.apply(relax.op.multiply, real.x, 0.035677408136300125), real.x)
        moved = real.apply(relax.op.multiply, real.apply(relax.op.add, cubic, 0.7978845608028654), real.x)
        gate = real(ops.real_function("tanh", moved))
    else:
        gate = real(ops.real_function("erf", real.apply(relax.op.multiply, real.x, math.sqrt(0.5))))
    return real.call(relax.op.multiply, half, real.apply(relax.op.add, gate, 1.0))


def softmax(real: Real, axis: int, beta: float = 1.0, *, logarithm: bool = False) -> relax.Call:
    """Returns exp(beta * x) divided by its sum along an axis, or the logarithm of this quotient.

    Like `MlasComputeSoftmax` (mlas/lib/compute.cpp), it multiplies by the reciprocal of the sum. If `axis` is not the
    last axis, it is moved there first, as in ONNX Runtime.
    """
    rank = len(shape_of(real.x))
    turned = [*(index for index in range(rank) if index != axis), axis]
    inside = turned == list(range(rank))
    x = real.x if inside else real.apply(lambda x: relax.op.permute_dims(x, turned), real.x)
    made = _softmax(real, x, beta, logarithm=logarithm)
    return made if inside else relax.op.permute_dims(real(made), [turned.index(index) for index in range(rank)])


def _softmax(real: Real, x: relax.Expr, beta: float, *, logarithm: bool) -> relax.Call:
    last = [len(shape_of(x)) - 1]
    moved = real.apply(relax.op.subtract, x, real(relax.op.max(x, axis=last, keepdims=True)))
    if beta != 1.0:
        moved = real.apply(relax.op.multiply, moved, beta)
    grown = real(ops.real_function("exp", moved))
    total = real(real.total(grown, last))
    if logarithm:
        return real.call(relax.op.subtract, moved, real(real.in_float64(relax.op.log, total)))
    return real.call(relax.op.multiply, grown, real.apply(relax.op.divide, 1.0, total))


def normalize(real: Real, axes: Sequence[int], epsilon: float) -> relax.Call:
    """Returns (x - mean) / sqrt(variance + epsilon). Mean and variance are taken along `axes`."""
    moved = centered(real, axes)
    variance = real(real.mean(real.apply(relax.op.multiply, moved, moved), axes))
    return real.call(relax.op.multiply, moved, _reciprocal_root(real, variance, epsilon))


def centered(real: Real, axes: Sequence[int]) -> relax.Expr:
    """Returns x - mean, along `axes`."""
    return real.apply(relax.op.subtract, real.x, real(real.mean(real.x, axes)))


def l2_normalize(real: Real, epsilon: float) -> relax.Call:
    """Returns x / max(sqrt(sum of squares), epsilon), along the last axis."""
    last = [len(shape_of(real.x)) - 1]
    squares = real(real.total(real.apply(relax.op.multiply, real.x, real.x), last))
    norm = real.apply(relax.op.maximum, real.apply(relax.op.sqrt, squares), epsilon)
    return real.call(relax.op.divide, real.x, norm)


def rms_normalize(real: Real, axes: Sequence[int], epsilon: float) -> relax.Call:
    """Returns x / sqrt(mean of squares + epsilon), along `axes` (Zhang and Sennrich 2019)."""
    squares = real(real.mean(real.apply(relax.op.multiply, real.x, real.x), axes))
    return real.call(relax.op.multiply, real.x, _reciprocal_root(real, squares, epsilon))


def _reciprocal_root(real: Real, variance: relax.Expr, epsilon: float) -> relax.Expr:
    root = real.apply(relax.op.sqrt, real.apply(relax.op.add, variance, epsilon))
    return real.apply(relax.op.divide, 1.0, root)
