"""Functions that few networks have. Those of real values are computed in float64 and rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax

from service.compiler.importers import real
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import Convert, float32, folded, function
from service.compiler.importers.real import Real, Wide
from service.compiler.qnn.graph import shape_of

_LAST_AXIS_SINCE = 13  # earlier operator sets apply Hardmax to the given axis and all axes after it
# For magnitudes below this bound, the first two terms of the series are exact in float32.
_SMALL = 1e-4


def _wide(of: Callable[[Wide], relax.Expr]) -> Convert:
    return function(lambda _node, made: real.in_float64(of)(made))


def _near_zero(wide: Wide, value: relax.Expr, cubic: float) -> relax.Expr:
    """Returns `value`, or x + cubic * x**3 where x is so small that the logarithm's argument rounds to 1."""
    squared = wide.apply(relax.op.multiply, wide.x, wide.x)
    series = wide.apply(relax.op.add, wide.apply(relax.op.multiply, squared, cubic), 1.0)
    near = wide.apply(relax.op.less, wide.apply(relax.op.abs, wide.x), _SMALL)
    return wide.apply(relax.op.where, near, wide.apply(relax.op.multiply, wide.x, series), value)


def _acosh(wide: Wide) -> relax.Expr:
    """Returns log(x + sqrt(x**2 - 1)), which is NaN below 1."""
    squared = wide.apply(relax.op.multiply, wide.x, wide.x)
    root = wide.apply(relax.op.sqrt, wide.apply(relax.op.subtract, squared, 1.0))
    return wide.apply(relax.op.log, wide.apply(relax.op.add, wide.x, root))


def _asinh(wide: Wide) -> relax.Expr:
    """Returns sign(x) * log(|x| + sqrt(x**2 + 1))."""
    squared, size = wide.apply(relax.op.multiply, wide.x, wide.x), wide.apply(relax.op.abs, wide.x)
    root = wide.apply(relax.op.sqrt, wide.apply(relax.op.add, squared, 1.0))
    grown = wide.apply(relax.op.log, wide.apply(relax.op.add, size, root))
    signed = wide.apply(
        relax.op.where, wide.apply(relax.op.less, wide.x, 0.0), wide.apply(relax.op.negative, grown), grown
    )
    return _near_zero(wide, signed, -1 / 6)


def _atanh(wide: Wide) -> relax.Expr:
    """Returns log((1 + x) / (1 - x)) / 2, which is NaN outside of -1 … 1."""
    above = wide.apply(relax.op.add, wide.x, 1.0)
    below = wide.apply(relax.op.add, wide.apply(relax.op.negative, wide.x), 1.0)
    ratio = wide.apply(relax.op.log, wide.apply(relax.op.divide, above, below))
    return _near_zero(wide, wide.apply(relax.op.multiply, ratio, 0.5), 1 / 3)


def _cosh(wide: Wide) -> relax.Expr:
    """Returns (exp(x) + exp(-x)) / 2."""
    grown, shrunk = (wide.apply(relax.op.exp, x) for x in (wide.x, wide.apply(relax.op.negative, wide.x)))
    return wide.apply(relax.op.multiply, wide.apply(relax.op.add, grown, shrunk), 0.5)


def _sinh(wide: Wide) -> relax.Expr:
    """Returns (exp(x) - exp(-x)) / 2."""
    grown, shrunk = (wide.apply(relax.op.exp, x) for x in (wide.x, wide.apply(relax.op.negative, wide.x)))
    return _near_zero(wide, wide.apply(relax.op.multiply, wide.apply(relax.op.subtract, grown, shrunk), 0.5), 1 / 6)


def shrink(node: Node) -> Value:
    """Returns x + bias below -lambd, x - bias above lambd, and 0 between them. Whole numbers are computed in float32
    and cut off.
    """
    dtype, bias, bound = node.dtype(0), node.attribute("bias", 0.0), node.attribute("lambd", 0.5)
    node.require_supported(
        dtype in ("float32", "int8", "uint8", "int16", "uint16", "int32"), f"works on {dtype}, which cannot be compiled"
    )
    x = node.expr(0) if dtype == "float32" else node.emit(relax.op.astype(node.expr(0), "float32"), "real")
    made = Real(node.emit, x)
    lower, upper = made.apply(relax.op.add, x, bias), made.apply(relax.op.subtract, x, bias)
    positive = made.apply(relax.op.where, made.apply(relax.op.greater, x, bound), upper, 0.0)
    result = made.apply(relax.op.where, made.apply(relax.op.less, x, -bound), lower, positive)
    return node.emit(result if dtype == "float32" else relax.op.astype(result, dtype))


def hardmax(node: Node) -> Value:
    """Returns 1 for the first of the largest elements along an axis, and 0 for the others."""
    float32(node)
    shape = node.shape(0)
    recent = node.state.model.opset >= _LAST_AXIS_SINCE
    axis = node.axis(node.attribute("axis", -1 if recent else 1), len(shape))
    x = node.expr(0)
    if not recent:
        x = node.emit(relax.op.reshape(x, (math.prod(shape[:axis]), math.prod(shape[axis:]))), "rows")
        axis = 1
    size, behind = shape_of(x)[axis], [1] * (len(shape_of(x)) - axis - 1)
    first = node.emit(relax.op.argmax(x, axis=axis, keepdims=True), "first")
    is_first = node.emit(relax.op.equal(first, node.literal(np.arange(size).reshape(-1, *behind))), "is_first")
    result = node.emit(relax.op.astype(is_first, "float32"), "ones")
    return node.emit(result if recent else relax.op.reshape(result, shape))


def mean(node: Node) -> Value:
    """Returns the sum of all operands, added from left to right, divided by their number."""
    total = folded(relax.op.add, np.add, "f")(node)
    if node.input_count == 1:
        return total
    count = node.literal(np.array(node.input_count, np.float32))
    if isinstance(total, np.ndarray):
        return node.folded(total / np.float32(node.input_count))
    return node.emit(relax.op.divide(total, count))


FUNCTIONS: dict[str, tuple[Convert, tuple[int, int]]] = {
    "Acosh": (_wide(_acosh), (1, 1)),
    "Asinh": (_wide(_asinh), (1, 1)),
    "Atanh": (_wide(_atanh), (1, 1)),
    "Cosh": (_wide(_cosh), (1, 1)),
    "Hardmax": (hardmax, (1, 1)),
    "Mean": (mean, (1, 1 << 16)),
    "Shrink": (shrink, (1, 1)),
    "Sinh": (_wide(_sinh), (1, 1)),
}
