"""Operators that normalize along a whole axis."""

from __future__ import annotations

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, same_storage, tensor_type
from service.compiler.qnn.types import QuantizedType


def softmax(
    x: relax.Expr,
    in_type: QuantizedType,
    out_type: QuantizedType,
    *,
    beta: float = 1.0,
    length: relax.Expr | None = None,
) -> relax.Call:
    """Returns exp(beta * x) / sum(exp(beta * x)) over the last axis, in real values.

    Args:
        length: the number of columns to compute, `[1]` int32; None for all. The other columns have no effect, and
            their results no meaning.
    """
    operands = [x] if length is None else [x, length]
    return call_of("softmax", operands, in_type=in_type, out_type=out_type, beta=beta)


def l2_normalize(x: relax.Expr, in_type: QuantizedType, out_type: QuantizedType) -> relax.Call:
    """Returns x / sqrt(sum(x ** 2)) over the last axis, in real values. The output's scale is 1/128, and its zero point
    is the middle of its storage's range.
    """
    return call_of("l2_normalize", [x], in_type=in_type, out_type=out_type)


def _l2_normalize(o: Operation) -> relax.TensorType:
    o.count(1)
    shape, out_type = o.stored(0, o.per_tensor("in_type")), o.per_tensor("out_type")
    o.require(len(shape) > 0, "a scalar has no last axis")
    middle = {"int8": 0, "uint8": 128}.get(same_storage(o))
    fixed = out_type.scale == 1 / 128 and out_type.zero_point == middle
    o.require(fixed, f"out_type must be 8-bit, with scale 1/128 and zero point in the middle, not {out_type}")
    return tensor_type(shape, out_type.dtype)


def _softmax(o: Operation) -> relax.TensorType:
    if o.count(1, 2) == 2:
        o.require(o.tensor(1) == ((1,), "int32"), "the length must be one int32")
    shape = o.stored(0, o.per_tensor("in_type"))
    o.require(len(shape) > 0, "a scalar has no last axis")
    o.require(float(o.attr("beta")) > 0, "beta must be positive")
    return tensor_type(shape, o.per_tensor("out_type").dtype)


RULES: dict[str, Rule] = {
    "l2_normalize": _l2_normalize,
    "softmax": _softmax,
}
