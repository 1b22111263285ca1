"""Operators of float32 values in the parts of a model that are not quantized, and plain arithmetic of integers and
booleans.

Operators that round once are computed in float32 and equal ONNX Runtime's bit for bit. So do sums and means
(`reduction.py`), softmax, and the functions that MLAS implements (`importers/real.py`). Other operators are computed in
float64 and rounded once; their results differ from ONNX Runtime's by at most a few units in the last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers import real
from service.compiler.importers.builder import movement
from service.compiler.importers.onnx.blocks import fills_blocks, reads_blocks
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.real import Real
from service.compiler.qnn import ops
from service.compiler.qnn.coverage import INSIDE
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.ops.real import SEQUENTIAL, STRIPS

Convert = Callable[[Node], Value]

# earlier operator sets apply softmax to the given axis and all axes after it, as if these were a single axis
_LAST_AXIS_SINCE = 13
_EXACT_POWERS = (2.0, 3.0)  # exponents for which ONNX Runtime multiplies (core/providers/cpu/math/element_wise_ops.cc)


def float32(node: Node, *positions: int) -> None:
    """Requires that all inputs are float32."""
    for position in positions or (0,):
        if node.dtype(position) != "float32":
            node.unsupported(f"works on {node.dtype(position)}; only float32 can be compiled", node.name(position))


def plain(make: Callable[..., relax.Call], compute: Callable[..., Any] | None = None, dtypes: str = "f") -> Convert:
    """Returns the converter of an operator that Relax also has. The operator takes one tensor, or several of one type.

    Args:
        compute: the operator in NumPy, for values that are known while importing; None if such values are not computed.
        dtypes: the operand types, as NumPy's kind characters; `f` means float32 only.
    """

    def convert(node: Node) -> Value:
        positions = range(node.input_count)
        known = node.all_known()
        if compute is not None and known is not None and node.is_small(known):
            with np.errstate(all="ignore"):
                return node.folded(compute(*known))
        kinds = {node.dtype(position) for position in positions}
        dtype = np.dtype(next(iter(kinds)))
        if len(kinds) > 1 or dtype.kind not in dtypes or (dtype.kind == "f" and dtype != np.float32):
            node.unsupported(f"works on {', '.join(sorted(kinds))}, which cannot be compiled")
        return node.emit(make(*operands(node)))

    return convert


def operands(node: Node) -> list[relax.Expr]:
    """Returns all inputs as expressions. A scalar with the axes of a tensor (`State.loose`) gets the rank of the other
    operands.
    """
    positions = range(node.input_count)
    loose = [node.name(position) in node.state.loose for position in positions]
    ranks = [
        len(node.shape(position))
        for position in positions
        if not loose[position] and node.known_value(position) is None
    ]
    if ranks and max(ranks) > 0:
        one = [1] * max(ranks)
        return [
            node.emit(relax.op.reshape(node.expr(position), one), "scalar") if loose[position] else node.expr(position)
            for position in positions
        ]
    if any(loose) and all(math.prod(node.shape(position)) == 1 for position in positions):
        node.state.loose.add(node.output)
    return [node.expr(position) for position in positions]


def folded(make: Callable[..., relax.Call], compute: Callable[..., Any], dtypes: str = "f") -> Convert:
    """Returns the converter of Min, Max or Sum: applies an operator of two operands to any number of them, from left to
    right.
    """

    def convert(node: Node) -> Value:
        one = plain(lambda *values: values[0] if len(values) == 1 else make(*values[:2]))
        if node.input_count <= 2:
            return plain(make, compute, dtypes)(node) if node.input_count == 2 else one(node)
        float32(node, *range(node.input_count))
        result, *rest = operands(node)
        for value in rest:
            result = node.emit(make(result, value), "part")
        return result

    return convert


def function(of: Callable[[Node, Real], relax.Call]) -> Convert:
    """Returns the converter of a function of each value."""

    def convert(node: Node) -> Value:
        float32(node)
        return node.emit(of(node, Real(node.emit, node.expr(0))))

    return convert


def hard_sigmoid(node: Node) -> Value:
    """Returns max(0, min(1, alpha * x + beta)), each step in float32."""
    float32(node)
    scaled = node.emit(relax.op.multiply(node.expr(0), _number(node.attribute("alpha", 0.2))), "scaled")
    moved = node.emit(relax.op.add(scaled, _number(node.attribute("beta", 0.5))), "moved")
    return _within(node, moved, 0.0, 1.0)


def hard_swish(node: Node) -> Value:
    """Returns x * max(0, min(1, x / 6 + 1 / 2)), each step in float32."""
    float32(node)
    scaled = node.emit(relax.op.multiply(node.expr(0), _number(float(np.float32(1) / np.float32(6)))), "scaled")
    gate = _within(node, node.emit(relax.op.add(scaled, _number(0.5)), "moved"), 0.0, 1.0)
    return node.emit(relax.op.multiply(node.expr(0), gate))


def _within(node: Node, x: relax.Expr, low: float, high: float) -> relax.Var:
    bounded = node.emit(relax.op.minimum(x, _number(high)), "bounded")
    return node.emit(relax.op.maximum(bounded, _number(low)), "gate")


def _number(value: float) -> relax.Constant:
    return relax.const(np.array(value, np.float32))


def leaky_relu(node: Node) -> Value:
    float32(node)
    return _sloped(node, _number(node.attribute("alpha", 0.01)))


def prelu(node: Node) -> Value:
    float32(node, 0, 1)
    return _sloped(node, node.expr(1))


def _sloped(node: Node, slope: relax.Expr) -> relax.Var:
    return node.emit(real.sloped(Real(node.emit, node.expr(0)), slope))


def thresholded_relu(node: Node) -> Value:
    """Returns x if it is greater than alpha, and otherwise 0."""
    float32(node)
    more = node.emit(relax.op.greater(node.expr(0), _number(node.attribute("alpha", 1.0))), "more")
    return node.emit(relax.op.where(more, node.expr(0), _number(0)))


def is_infinite(node: Node) -> Value:
    """Returns true for infinities of either sign, or of one sign only (`detect_negative`, `detect_positive`)."""
    float32(node)
    signs = [
        (each, sign) for each, sign in (("detect_negative", -1), ("detect_positive", 1)) if node.attribute(each, 1)
    ]
    if len(signs) == 2:
        return node.emit(relax.op.isinf(node.expr(0)))
    infinity = signs[0][1] * math.inf if signs else math.nan  # no value equals NaN, so the comparison gives false
    return node.emit(relax.op.equal(node.expr(0), _number(infinity)))


def reciprocal(node: Node) -> Value:
    float32(node)
    return node.emit(relax.op.divide(_number(1), node.expr(0)))


def power(node: Node) -> Value:
    """Inputs: x, exponent. Squares and cubes are computed as products, other powers in float64, also those of whole
    numbers (core/providers/cpu/math/element_wise_ops.cc).
    """
    known = node.all_known()
    if known is not None and node.is_small(known):
        with np.errstate(all="ignore"):
            return node.folded(np.power(*known).astype(known[0].dtype))
    base, exponent = node.dtype(0), node.known_value(1)
    node.require_supported(
        {base, node.dtype(1)} <= {"float32", "int32", "int64"},
        f"works on {base} and {node.dtype(1)}; only float32, int32 and int64 can be compiled",
    )
    whole = float(exponent.reshape(-1)[0]) if exponent is not None and exponent.size == 1 else None
    if whole in _EXACT_POWERS:
        result = squared = node.emit(relax.op.multiply(node.expr(0), node.expr(0)), "squared")
        return squared if whole == 2 else node.emit(relax.op.multiply(result, node.expr(0)))
    wide = [node.emit(relax.op.astype(node.expr(index), "float64"), "wide") for index in (0, 1)]
    return node.emit(relax.op.astype(node.emit(relax.op.power(*wide), "power"), base))


def where(node: Node) -> Value:
    """Inputs: condition, X, Y."""
    known = node.all_known()
    if known is not None and node.is_small(known):
        return node.folded(np.where(known[0], known[1], known[2]))
    node.require(node.dtype(0) == "bool", f"has a condition of {node.dtype(0)}, not bool")
    node.require(
        node.dtype(1) == node.dtype(2), f"has operands of different types, {node.dtype(1)} and {node.dtype(2)}"
    )
    return node.emit(relax.op.where(node.expr(0), node.expr(1), node.expr(2)))


# -- along axes


def softmax(node: Node, *, logarithm: bool = False) -> Value:
    float32(node)
    shape = node.shape(0)
    node.require(bool(shape), "has a scalar input")
    recent = node.state.model.opset >= _LAST_AXIS_SINCE
    axis = node.axis(node.attribute("axis", -1 if recent else 1), len(shape))
    if recent:
        return node.emit(real.softmax(Real(node.emit, node.expr(0)), axis, logarithm=logarithm))
    rows = node.emit(relax.op.reshape(node.expr(0), (*shape[:axis], math.prod(shape[axis:]))), "rows")
    made = node.emit(real.softmax(Real(node.emit, rows), axis, logarithm=logarithm), INSIDE)
    return node.emit(relax.op.reshape(made, shape))


def extreme(make: Callable[..., relax.Call]) -> Convert:
    """Returns the converter of the largest or smallest value along some axes. The converter also works on stored
    values.
    """

    def convert(node: Node) -> Value:
        axes, keepdims = reduced_axes(node)
        if any(node.shape(0)[axis] == 0 for axis in axes):
            return _of_nothing(node, axes, keepdims=keepdims, is_max=make is relax.op.max)
        if node.dtype(0) == "bool" and axes:
            number = node.emit(relax.op.astype(node.expr(0), "int8"), "numbers")
            return node.emit(relax.op.astype(node.emit(make(number, axis=axes, keepdims=keepdims), "extreme"), "bool"))
        return node.with_input_type(
            node.emit(make(node.expr(0), axis=axes, keepdims=keepdims) if axes else node.expr(0))
        )

    return convert


def _of_nothing(node: Node, axes: Sequence[int], *, keepdims: bool, is_max: bool) -> Value:
    """Returns the extreme of no elements: the least or the largest value of the type."""
    kept = [1 if axis in axes else dim for axis, dim in enumerate(node.shape(0)) if keepdims or axis not in axes]
    dtype = np.dtype(node.dtype(0))
    if dtype.kind == "b":
        value: Any = not is_max
    elif dtype.kind == "f":
        value = -math.inf if is_max else math.inf
    else:
        value = np.iinfo(dtype).min if is_max else np.iinfo(dtype).max
    return node.folded(np.full(kept, value, dtype))


def extreme_place(make: Callable[..., relax.Call]) -> Convert:
    """Returns the converter of ArgMax or ArgMin, which give the int64 index of the first extreme element, or of the
    last one (`select_last_index`).
    """

    def convert(node: Node) -> Value:
        axis = node.axis(node.attribute("axis", 0), len(node.shape(0)))
        keepdims, x = bool(node.attribute("keepdims", 1)), node.expr(0)
        if not node.attribute("select_last_index", 0):
            return node.emit(make(x, axis=axis, keepdims=keepdims))
        size = node.shape(0)[axis]
        turned = movement.take(node, x, axis, size, lambda: np.arange(size)[::-1], "turned")
        first = node.emit(make(turned, axis=axis, keepdims=keepdims), "first")
        return node.emit(relax.op.subtract(node.literal(np.array(size - 1, np.int64)), first))

    return convert


def reduced_axes(node: Node) -> tuple[list[int], bool]:
    """Returns the reduced axes, and true if they are kept with length 1. Up to operator set 17 (12 for ReduceSum), the
    axes are an attribute; later, they are an input. By default, all axes are reduced, or none if `noop_with_empty_axes`
    is set.
    """
    rank, keepdims = len(node.shape(0)), bool(node.attribute("keepdims", 1))
    named = node.axes(node.named_axes(), rank)
    if not named and node.attribute("noop_with_empty_axes", 0):
        return [], keepdims
    return sorted(set(named)) or list(range(rank)), keepdims


def root_of_squares(node: Node) -> Value:
    """Converts ReduceL2."""
    float32(node)
    axes, keepdims = reduced_axes(node)
    if not axes:
        return node.emit(node.expr(0))
    made = Real(node.emit, node.expr(0))
    squares = made.apply(relax.op.multiply, made.x, made.x)
    return node.emit(relax.op.sqrt(made(made.total(squares, axes, keepdims=keepdims))))


def global_average_pool(node: Node) -> Value:
    float32(node)
    rank = len(node.shape(0))
    node.require(rank >= 3, f"has an input of shape {list(node.shape(0))}, not [N, C, …]")
    is_blocked = fills_blocks(node.shape(0)) and reads_blocks(node.state.model, node.name(0))
    return mean_of_images(node, node.expr(0), SEQUENTIAL if is_blocked else STRIPS)


def mean_of_images(node: Node, x: relax.Expr, order: str) -> Value:
    """Returns the mean of each channel: `[N, C, 1, …]` from `[N, C, …]`."""
    shape = shape_of(x)
    total = ops.real_sum(x, axes=range(2, len(shape)), order=order)
    return node.emit(relax.op.divide(node.emit(total, INSIDE), _number(math.prod(shape[2:]))))


def global_max_pool(node: Node) -> Value:
    """Returns the largest value of each channel, also for stored values."""
    rank = len(node.shape(0))
    node.require(rank >= 3, f"has an input of shape {list(node.shape(0))}, not [N, C, …]")
    return node.with_input_type(node.emit(relax.op.max(node.expr(0), axis=list(range(2, rank)), keepdims=True)))


_NUMBERS = "fiu"
# Operators with one result: type -> converter, and the allowed numbers of inputs (used by `operators`).
REAL: dict[str, tuple[Convert, tuple[int, int]]] = {
    "Abs": (plain(relax.op.abs, np.abs, "fi"), (1, 1)),
    "And": (plain(relax.op.logical_and, np.logical_and, "b"), (2, 2)),
    "ArgMax": (extreme_place(relax.op.argmax), (1, 1)),
    "ArgMin": (extreme_place(relax.op.argmin), (1, 1)),
    "Ceil": (plain(relax.op.ceil, np.ceil), (1, 1)),
    "Equal": (plain(relax.op.equal, np.equal, _NUMBERS), (2, 2)),
    "Floor": (plain(relax.op.floor, np.floor), (1, 1)),
    "GlobalAveragePool": (global_average_pool, (1, 1)),
    "GlobalMaxPool": (global_max_pool, (1, 1)),
    "Greater": (plain(relax.op.greater, np.greater, _NUMBERS), (2, 2)),
    "GreaterOrEqual": (plain(relax.op.greater_equal, np.greater_equal, _NUMBERS), (2, 2)),
    "HardSigmoid": (hard_sigmoid, (1, 1)),
    "HardSwish": (hard_swish, (1, 1)),
    "IsInf": (is_infinite, (1, 1)),
    "IsNaN": (plain(relax.op.isnan, np.isnan), (1, 1)),
    "LeakyRelu": (leaky_relu, (1, 1)),
    "Less": (plain(relax.op.less, np.less, _NUMBERS), (2, 2)),
    "LessOrEqual": (plain(relax.op.less_equal, np.less_equal, _NUMBERS), (2, 2)),
    "LogSoftmax": (partial(softmax, logarithm=True), (1, 1)),
    "Max": (folded(relax.op.maximum, np.maximum, _NUMBERS), (1, 1 << 16)),
    "Min": (folded(relax.op.minimum, np.minimum, _NUMBERS), (1, 1 << 16)),
    "Neg": (plain(relax.op.negative, np.negative, "fi"), (1, 1)),
    "Not": (plain(relax.op.logical_not, np.logical_not, "b"), (1, 1)),
    "Or": (plain(relax.op.logical_or, np.logical_or, "b"), (2, 2)),
    "PRelu": (prelu, (2, 2)),
    "Pow": (power, (2, 2)),
    "Reciprocal": (reciprocal, (1, 1)),
    "ReduceL2": (root_of_squares, (1, 2)),
    "ReduceMax": (extreme(relax.op.max), (1, 2)),
    "ReduceMin": (extreme(relax.op.min), (1, 2)),
    "Round": (plain(relax.op.round, np.rint), (1, 1)),
    "Sign": (plain(relax.op.sign, np.sign, "fi"), (1, 1)),
    "Softmax": (softmax, (1, 1)),
    "Sqrt": (plain(relax.op.sqrt, np.sqrt), (1, 1)),
    "Sum": (folded(relax.op.add, np.add, "fi"), (1, 1 << 16)),
    "ThresholdedRelu": (thresholded_relu, (1, 1)),
    "Where": (where, (3, 3)),
    "Xor": (plain(relax.op.logical_xor, np.logical_xor, "b"), (2, 2)),
}
