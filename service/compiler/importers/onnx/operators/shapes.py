"""Operators on shapes and axes, which are computed while importing. For example, exporters express `x.view(x.size(0),
-1)` with these operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.file.schema import DTYPES
from service.compiler.importers.onnx.file.tensors import SMALL_REALS
from service.compiler.importers.onnx.model import Tensor
from service.compiler.importers.onnx.node import Node, Value
from service.core.models.arrays import Array

_LONGEST = 1 << 16  # the most elements of a Range
_MOST_AXES = 8
_CASTS = ("int64", "int32", "int16", "int8", "uint16", "uint8", "float32", "float64", "bool")
_HALVES = ("bfloat16", "float16")


def shape(node: Node) -> Value:
    extents = node.shape(0)
    start, end = node.attribute("start", 0), node.attribute("end", len(extents))
    return np.array(extents[slice(start, end)], np.int64)


def cast(node: Node) -> Value:
    """Casts values that are known while importing. At run time, only casts that cannot go out of range are
    supported.
    """
    to = DTYPES.get(node.attribute("to", 0), "nothing")
    known, dtype = node.known_value(0), node.dtype(0)
    node.keep_loose()
    if known is not None and to in _CASTS:
        return node.folded(known.astype(to))
    if {to, dtype} & {*_HALVES} and {to, dtype} <= {"float32", *_HALVES}:
        return node.emit(relax.op.astype(node.expr(0), to))
    if to == dtype:
        return known if known is not None else node.with_input_type(node.emit(node.expr(0)))
    if known is not None or to not in _CASTS:
        hint = "Octet computes in float32: export the model in float32" if "float" in f"{dtype} {to}" else None
        node.unsupported(f"casts {dtype} to {to}, which cannot be compiled", hint=hint)
    if to == "bool":
        return node.emit(relax.op.not_equal(node.expr(0), node.literal(np.array(0, dtype))))
    if dtype in ("float32", "float64") and to not in ("float32", "float64"):
        return _truncated(node, to)
    return node.emit(relax.op.astype(node.expr(0), to))


def round_halves(node: Node) -> Value:
    """Rounds float32 to the values of the 16-bit type in the attribute `to` (`half.carrying` creates this operator)."""
    known, to = node.known_value(0), DTYPES[node.attribute("to", 0)]
    node.keep_loose()
    if to in SMALL_REALS:
        return _rounded_small(node, np.dtype(SMALL_REALS[to]))
    if known is not None and node.is_small([known]):
        with np.errstate(over="ignore"):
            return node.folded(known.astype(np.dtype(to)).astype(np.float32))
    return node.emit(relax.op.astype(node.emit(relax.op.astype(node.expr(0), to), "rounded"), "float32"))


def _rounded_small(node: Node, dtype: np.dtype[Any]) -> Value:
    values = np.arange(1 << 8, dtype=np.uint8).view(dtype).astype(np.float32)
    limit = float(values[np.isfinite(values)].max())
    x = node.emit(relax.op.minimum(node.expr(0), relax.const(np.array(limit, np.float32))), "below")
    x = node.emit(relax.op.maximum(x, relax.const(np.array(-limit, np.float32))), "above")
    rounded = relax.op.astype(node.emit(relax.op.astype(x, dtype.name), "rounded"), "float32")
    if node.attribute("saturate", 1):
        return node.emit(rounded)
    return node.emit(_overflowed(node, node.emit(rounded, "limited"), dtype, values[np.isfinite(values)]))


def _overflowed(node: Node, rounded: relax.Expr, dtype: np.dtype[Any], values: Array) -> relax.Call:
    """Returns `rounded`, and infinity or NaN for each number that is rounded to more than the largest value of a
    type. LLVM converts such numbers otherwise than ml_dtypes.
    """
    least, largest = np.unique(values)[-2:]
    middle = np.float32(largest + (largest - least) / 2)
    with np.errstate(over="ignore", invalid="ignore"):
        is_beyond = not np.isfinite(middle.astype(dtype).astype(np.float32))
        beyond = np.float32(np.finfo(np.float32).max).astype(dtype).astype(np.float32)
    size = node.emit(relax.op.abs(node.expr(0)), "size")
    bound = relax.const(middle)
    over = node.emit((relax.op.greater_equal if is_beyond else relax.op.greater)(size, bound), "over")
    signed = node.emit(
        relax.op.multiply(relax.op.sign(node.expr(0)), relax.const(np.array(beyond, np.float32))), "sign"
    )
    return relax.op.where(over, signed, rounded)


def cast_like(node: Node) -> Value:
    """Inputs: input, target_type. The second input only determines the type."""
    number = next(number for number, dtype in DTYPES.items() if dtype == node.dtype(1))
    operator = replace(node.operator, inputs=node.operator.inputs[:1], attributes={"to": number})
    return cast(Node(node.state, operator))


def _truncated(node: Node, to: str) -> Value:
    """Truncates towards zero. ONNX does not define the result for values that do not fit; here it is the nearest value
    that fits, and 0 for NaN.
    """
    wide = node.emit(relax.op.astype(node.expr(0), "float64"), "wide")
    number = node.emit(
        relax.op.where(node.emit(relax.op.isnan(wide), "nan"), relax.const(np.array(0.0), "float64"), wide), "number"
    )
    info = np.iinfo(to)
    # The largest float64 that does not exceed the type's largest value.
    high = float(info.max) if info.bits < 64 else float(np.nextafter(2.0**63, 0))
    for bound, by in ((float(info.min), relax.op.maximum), (high, relax.op.minimum)):
        number = node.emit(by(number, relax.const(np.array(bound), "float64")), "bounded")
    return node.emit(relax.op.astype(number, to))


def constant_of_shape(node: Node) -> Value:
    extents, value = node.integers(0), node.attribute("value", None)
    node.require(all(size >= 0 for size in extents), f"has the invalid shape {list(extents)[:8]}")
    node.require_supported(
        len(extents) <= _MOST_AXES, f"has a shape of {len(extents)} axes; at most {_MOST_AXES} can be compiled"
    )
    fill = np.zeros(1, np.float32) if not isinstance(value, Tensor) else value.data
    if fill is None or fill.size != 1:
        node.malformed("has a value that is not one number")
    if math.prod(extents) > 1 << 16:
        return node.emit(relax.op.broadcast_to(node.literal(fill.reshape(-1)[:1]), extents))
    return np.full(extents, fill.reshape(-1)[0])


def size(node: Node) -> Value:
    return np.array(math.prod(node.shape(0)), np.int64)


# -- operators that are supported only if their operands are known while importing


def on_known_values(
    compute: Callable[..., Any], otherwise: Callable[[Node], Value] | None = None
) -> Callable[[Node], Value]:
    """Returns the converter of an operator on values that are known while importing. `compute` takes the node and the
    elements of its operands. If a value is not known, `otherwise` is called.
    """

    def convert(node: Node) -> Value:
        if otherwise is not None and (node.all_known() is None or not node.is_small(node.all_known() or ())):
            return otherwise(node)
        operands = [node.data(index) for index in range(node.input_count) if node.has(index)]
        try:
            with np.errstate(all="ignore"):
                return node.folded(compute(node, *operands))
        except (ValueError, TypeError, IndexError, OverflowError):
            node.malformed("has operands that do not fit together")

    return convert


def range_(node: Node, start: Array, limit: Array, delta: Array) -> Array:
    node.require(all(value.size == 1 for value in (start, limit, delta)), "has operands that are not single numbers")
    first, end, step = (value.reshape(-1)[0].item() for value in (start, limit, delta))
    node.require(
        step != 0 and math.isfinite(count := (end - first) / step),
        f"cannot count from {first} to {end} in steps of {step}",
    )
    if count > _LONGEST:
        node.unsupported(f"has {count:.0f} elements; the limit is {_LONGEST}")
    return np.asarray((first + step * np.arange(max(0, math.ceil(count)))).astype(start.dtype))


def modulo(node: Node, dividend: Array, divisor: Array) -> Array:
    node.require_supported(bool((divisor != 0).all()), "divides by zero")
    return np.asarray((np.fmod if node.attribute("fmod", 0) else np.mod)(dividend, divisor))


def modulo_computed(node: Node) -> Value:
    """Computes a modulo by constants other than zero. (An integer division by zero would end the process.)"""
    whole = np.dtype(node.dtype(0)).kind in "iu"
    node.require(node.dtype(0) == node.dtype(1), f"cannot divide {node.dtype(0)} by {node.dtype(1)}")
    truncated = bool(node.attribute("fmod", 0))
    if not whole and not truncated:
        node.unsupported("works on real values without fmod, which cannot be compiled")
    if whole:
        node.require_supported(bool((node.data(1) != 0).all()), "divides by zero")
    return node.emit((relax.op.mod if truncated else relax.op.floor_mod)(node.expr(0), node.expr(1)))


def non_zero(_node: Node, data: Array) -> Array:
    return np.array(np.nonzero(data), np.int64)
