"""Functions of real values, for every importer: taken in float64 and rounded once to float32.

The frameworks take them in float32, each in its own way and within a few units in the last place of this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tvm import relax

from service.compiler.qnn.graph import shape_of

Emit = Callable[[relax.Expr, str], relax.Expr]


class Wide:
    """Float64 arithmetic inside of one operator.

    Attributes:
        x: the operand, float64.
    """

    def __init__(self, emit: Emit, x: relax.Expr) -> None:
        """`emit` binds an expression under a name's part; `x` is float32."""
        self._emit = emit
        self.x = self.widened(x)

    def __call__(self, expr: relax.Expr) -> relax.Expr:
        return self._emit(expr, "wide")

    def widened(self, x: relax.Expr) -> relax.Expr:
        """`x` in float64."""
        return self(relax.op.astype(x, "float64"))

    def apply(self, make: Callable[..., relax.Call], *operands: relax.Expr | float) -> relax.Expr:
        return self(make(*(relax.const(x, "float64") if isinstance(x, float) else x for x in operands)))

    def rounded(self, x: relax.Expr) -> relax.Expr:
        """float32."""
        return self._emit(relax.op.astype(x, "float32"), "")


Function = Callable[[Wide], relax.Expr]


def of_relax(make: Callable[[relax.Expr], relax.Call]) -> Function:
    return lambda wide: wide.apply(make, wide.x)


def logistic(wide: Wide) -> relax.Expr:
    grown = wide.apply(relax.op.exp, wide.apply(relax.op.negative, wide.x))
    return wide.apply(relax.op.divide, 1.0, wide.apply(relax.op.add, 1.0, grown))


def hard_swish(wide: Wide) -> relax.Expr:
    moved = wide.apply(relax.op.add, wide.x, 3.0)
    gate = wide.apply(relax.op.minimum, wide.apply(relax.op.maximum, moved, 0.0), 6.0)
    return wide.apply(relax.op.divide, wide.apply(relax.op.multiply, wide.x, gate), 6.0)


def elu(wide: Wide, alpha: float = 1.0) -> relax.Expr:
    below = wide.apply(relax.op.subtract, wide.apply(relax.op.exp, wide.apply(relax.op.minimum, wide.x, 0.0)), 1.0)
    scaled = below if alpha == 1.0 else wide.apply(relax.op.multiply, below, alpha)
    return wide.apply(relax.op.where, wide.apply(relax.op.less, wide.x, 0.0), scaled, wide.x)


def rsqrt(wide: Wide) -> relax.Expr:
    return wide.apply(relax.op.divide, 1.0, wide.apply(relax.op.sqrt, wide.x))


def gelu(wide: Wide, *, approximate: bool) -> relax.Expr:
    """x * (1 + erf(x / sqrt(2))) / 2, or its approximation by tanh (Hendrycks and Gimpel 2016).

    The latter as x * logistic(2 * y), which is x * (1 + tanh(y)) / 2 without the difference that leaves nothing of tanh
    where y is far below zero.
    """
    if approximate:
        cubed = wide.apply(relax.op.multiply, wide.apply(relax.op.multiply, wide.x, wide.x), wide.x)
        moved = wide.apply(relax.op.add, wide.x, wide.apply(relax.op.multiply, cubed, 0.044715))
        grown = wide.apply(relax.op.exp, wide.apply(relax.op.multiply, moved, -2 * math.sqrt(2 / math.pi)))
        return wide.apply(relax.op.divide, wide.x, wide.apply(relax.op.add, grown, 1.0))
    gate = wide.apply(relax.op.erf, wide.apply(relax.op.multiply, wide.x, math.sqrt(0.5)))
    half = wide.apply(relax.op.multiply, wide.x, 0.5)
    return wide.apply(relax.op.multiply, half, wide.apply(relax.op.add, gate, 1.0))


def softmax(wide: Wide, axes: Sequence[int], beta: float = 1.0, *, logarithm: bool = False) -> relax.Expr:
    """exp(beta * x) over its sum along `axes`; its logarithm."""
    return softmax_of(wide, wide.x, axes, beta, logarithm=logarithm)


def softmax_of(
    wide: Wide, x: relax.Expr, axes: Sequence[int], beta: float = 1.0, *, logarithm: bool = False
) -> relax.Expr:
    """The same of another float64 value."""
    largest = wide(relax.op.max(x, axis=list(axes), keepdims=True))
    moved = wide.apply(relax.op.multiply, wide.apply(relax.op.subtract, x, largest), beta)
    grown = wide.apply(relax.op.exp, moved)
    total = wide(relax.op.sum(grown, axis=list(axes), keepdims=True))
    if logarithm:
        return wide.apply(relax.op.subtract, moved, wide.apply(relax.op.log, total))
    return wide.apply(relax.op.divide, grown, total)


def mean(wide: Wide, axes: Sequence[int], *, keepdims: bool, of: relax.Expr | None = None) -> relax.Expr:
    """The mean of the operand, or of another value `of`."""
    x = wide.x if of is None else of
    count = math.prod(shape_of(x)[axis] for axis in axes)
    return wide.apply(relax.op.divide, wide(relax.op.sum(x, axis=list(axes), keepdims=keepdims)), float(count))


def normalize(wide: Wide, axes: Sequence[int], epsilon: float) -> relax.Expr:
    """(x - mean) / sqrt(variance + epsilon), both along `axes`."""
    moved = wide.apply(relax.op.subtract, wide.x, mean(wide, axes, keepdims=True))
    variance = mean(wide, axes, keepdims=True, of=wide.apply(relax.op.multiply, moved, moved))
    return wide.apply(relax.op.divide, moved, wide.apply(relax.op.sqrt, wide.apply(relax.op.add, variance, epsilon)))


def rms_normalize(wide: Wide, axes: Sequence[int], epsilon: float) -> relax.Expr:
    """x / sqrt(mean of squares + epsilon), along `axes` (Zhang and Sennrich 2019)."""
    squares = mean(wide, axes, keepdims=True, of=wide.apply(relax.op.multiply, wide.x, wide.x))
    return wide.apply(relax.op.divide, wide.x, wide.apply(relax.op.sqrt, wide.apply(relax.op.add, squares, epsilon)))
