"""NumPy implementations of the plain Relax operators that importers emit in addition to the QNN dialect.

Most of these operators only move elements, so they mean the same in every mode. The others compute on integers and
booleans that are not quantized (shapes, indices and comparisons), or on real values between quantized parts of the
model. There each operator rounds once, as IEEE 754 defines it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Op

from service.compiler.qnn import graph
from service.compiler.qnn.operation import value_of
from service.core.models.arrays import Array

Meaning = Callable[..., Array]


def _pad(call: relax.Call, x: Array) -> Array:
    widths = [int(width) for width in call.attrs.pad_width]
    value = np.array(float(call.attrs.pad_value)).astype(x.dtype)
    return np.pad(x, list(zip(widths[::2], widths[1::2], strict=True)), constant_values=value)


def _strided_slice(call: relax.Call, x: Array, *_bounds: Any) -> Array:
    axes, begin, end, *named = ([int(field.value) for field in arg.fields] for arg in call.args[1:])
    strides = named[0] if named else [1] * len(axes)
    index = [slice(None)] * x.ndim
    for axis, first, stop, step in zip(axes, begin, end, strides, strict=True):
        index[axis] = slice(first, stop, step)
    return x[tuple(index)]


def _take(call: relax.Call, x: Array, indices: Array) -> Array:
    """Indices outside the axis are clamped to its ends (`mode` is clip)."""
    axis = int(call.attrs.axis)
    return np.take(x, np.clip(indices.astype(np.int64), 0, x.shape[axis] - 1), axis=axis)


def _reduced(function: Callable[..., Array]) -> Meaning:
    def reduce(call: relax.Call, x: Array) -> Array:
        axes = tuple(int(axis) for axis in call.attrs.axis)
        return np.asarray(function(x, axis=axes, keepdims=bool(call.attrs.keepdims))).astype(x.dtype)

    return reduce


def _extreme_place(function: Callable[..., Array]) -> Meaning:
    def place(call: relax.Call, x: Array) -> Array:
        """Returns the position of the extreme element. Of equal elements, it is the first."""
        return np.asarray(function(x, axis=int(call.attrs.axis), keepdims=bool(call.attrs.keepdims))).astype(np.int64)

    return place


def _astype(call: relax.Call, x: Array) -> Array:
    with np.errstate(over="ignore"):  # values beyond float16 become infinite
        return x.astype(str(call.attrs.dtype))


def _elementwise(function: Callable[..., Array]) -> Meaning:
    def compute(call: relax.Call, *operands: Array) -> Array:
        with np.errstate(all="ignore"):  # real values may be infinite
            return np.asarray(function(*operands))

    return compute


def _divided(lhs: Array, rhs: Array) -> Array:
    """Divides. Quotients of whole numbers are rounded towards zero, as in generated code."""
    if lhs.dtype.kind not in "iu":
        return np.asarray(lhs / rhs)
    return np.asarray((lhs - np.fmod(lhs, rhs)) // rhs)


# Each element of the result depends only on the operands' elements at its position. The operands are broadcast to one
# shape.
ELEMENTWISE: dict[str, Meaning] = {
    "relax.abs": _elementwise(np.abs),
    "relax.acos": _elementwise(np.arccos),
    "relax.add": _elementwise(np.add),
    "relax.asin": _elementwise(np.arcsin),
    "relax.astype": _astype,
    "relax.atan": _elementwise(np.arctan),
    "relax.bitwise_and": _elementwise(np.bitwise_and),
    "relax.bitwise_not": _elementwise(np.invert),
    "relax.bitwise_or": _elementwise(np.bitwise_or),
    "relax.bitwise_xor": _elementwise(np.bitwise_xor),
    "relax.ceil": _elementwise(np.ceil),
    "relax.cos": _elementwise(np.cos),
    "relax.cosh": _elementwise(np.cosh),
    "relax.divide": _elementwise(_divided),
    "relax.equal": _elementwise(np.equal),
    "relax.erf": _elementwise(np.vectorize(math.erf, otypes=[np.float64])),
    "relax.exp": _elementwise(np.exp),
    "relax.floor": _elementwise(np.floor),
    "relax.floor_divide": _elementwise(np.floor_divide),
    "relax.floor_mod": _elementwise(np.mod),
    "relax.greater": _elementwise(np.greater),
    "relax.greater_equal": _elementwise(np.greater_equal),
    "relax.isinf": _elementwise(np.isinf),
    "relax.isnan": _elementwise(np.isnan),
    "relax.left_shift": _elementwise(np.left_shift),
    "relax.less": _elementwise(np.less),
    "relax.less_equal": _elementwise(np.less_equal),
    "relax.log": _elementwise(np.log),
    "relax.logical_and": _elementwise(np.logical_and),
    "relax.logical_not": _elementwise(np.logical_not),
    "relax.logical_or": _elementwise(np.logical_or),
    "relax.logical_xor": _elementwise(np.logical_xor),
    "relax.maximum": _elementwise(np.maximum),
    "relax.minimum": _elementwise(np.minimum),
    "relax.mod": _elementwise(np.fmod),
    "relax.multiply": _elementwise(np.multiply),
    "relax.negative": _elementwise(np.negative),
    "relax.nn.relu": _elementwise(lambda x: np.maximum(x, x.dtype.type(0))),
    "relax.not_equal": _elementwise(np.not_equal),
    "relax.power": _elementwise(np.power),
    "relax.right_shift": _elementwise(np.right_shift),
    "relax.round": _elementwise(np.rint),
    "relax.sign": _elementwise(np.sign),
    "relax.sin": _elementwise(np.sin),
    "relax.sinh": _elementwise(np.sinh),
    "relax.sqrt": _elementwise(np.sqrt),
    "relax.subtract": _elementwise(np.subtract),
    "relax.tan": _elementwise(np.tan),
    "relax.tanh": _elementwise(np.tanh),
    "relax.where": _elementwise(np.where),
}

PLAIN: dict[str, Meaning] = {
    **ELEMENTWISE,
    "relax.argmax": _extreme_place(np.argmax),
    "relax.argmin": _extreme_place(np.argmin),
    "relax.broadcast_to": lambda call, x, _shape: np.broadcast_to(x, graph.shape_of(call)),
    "relax.concat": lambda call, parts: np.concatenate(parts, int(call.attrs.axis)),
    "relax.flip": lambda call, x: np.flip(x, int(call.attrs.axis)),
    "relax.gather_elements": lambda call, x, at: np.take_along_axis(x, at, int(call.attrs.axis)),
    "relax.matmul": _elementwise(np.matmul),
    "relax.max": _reduced(np.max),
    "relax.min": _reduced(np.min),
    "relax.nn.pad": _pad,
    "relax.permute_dims": lambda call, x: x.transpose([int(axis) for axis in call.attrs.axes or range(x.ndim)[::-1]]),
    "relax.prod": _reduced(np.prod),
    "relax.reshape": lambda call, x, _shape: x.reshape(graph.shape_of(call)),
    "relax.strided_slice": _strided_slice,
    "relax.sum": _reduced(np.sum),
    "relax.take": _take,
    "relax.tile": lambda call, x: np.tile(x, [int(times) for times in call.attrs.repeats]),
    "relax.tril": lambda call, x, *_: np.tril(x, int(call.args[1].value)),
    "relax.triu": lambda call, x, *_: np.triu(x, int(call.args[1].value)),
}


def fold(builder: relax.BlockBuilder, expr: relax.Expr, affords: Callable[[int], bool]) -> relax.Expr | None:
    """Returns the value of a plain operator on constants. Returns None if `expr` is something else, or if `affords`
    refuses the size of the value in bytes.
    """
    if not (isinstance(expr, relax.Call) and isinstance(expr.op, Op) and expr.op.name in PLAIN):
        return None
    operands = [_argument_value(arg) for arg in expr.args]
    if any(operand is None for operand in operands):
        return None
    call = graph.typed(builder, expr)
    if not affords(math.prod(graph.shape_of(call)) * np.dtype(str(call.ty.dtype)).itemsize):
        return None
    value = PLAIN[expr.op.name](call, *operands)
    return relax.const(np.asarray(value, str(call.ty.dtype), order="C"), str(call.ty.dtype))


def _argument_value(arg: relax.Expr) -> Any:
    """Returns the value of a constant, or the values of a tuple of constants. Arguments of other types are returned
    unchanged.
    """
    if isinstance(arg, relax.Tuple):
        parts = [_argument_value(field) for field in arg.fields]
        return None if any(part is None for part in parts) else parts
    return value_of(arg) if isinstance(arg.ty, relax.TensorType) else arg
