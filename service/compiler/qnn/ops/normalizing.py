"""Operators over a whole axis."""

from __future__ import annotations

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type
from service.compiler.qnn.types import QuantizedType


def softmax(x: relax.Expr, in_type: QuantizedType, out_type: QuantizedType, *, beta: float = 1.0) -> relax.Call:
    """exp(beta * x) / sum(exp(beta * x)) over the last axis, in real values."""
    return call_of("softmax", [x], in_type=in_type, out_type=out_type, beta=beta)


def _softmax(o: Operation) -> relax.TensorType:
    o.count(1)
    shape = o.stored(0, o.per_tensor("in_type"))
    o.require(len(shape) > 0, "a scalar has no last axis")
    o.require(float(o.attr("beta")) > 0, "beta has to be positive")
    return tensor_type(shape, o.per_tensor("out_type").dtype)


RULES: dict[str, Rule] = {
    "softmax": _softmax,
}
