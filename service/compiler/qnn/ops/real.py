"""What a model computes of real values though it is quantized elsewhere: its activations are float32 there."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type


def real_conv2d(
    x: relax.Expr,
    weight: relax.Expr,
    bias: relax.Expr | None,
    *,
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> relax.Call:
    """sum(x * weight) + bias of float32: `[N, H, W, C]`, `[O, KH, KW, C / groups]`, `[O]` -> `[N, …, O]`.

    Products are added in float64, one after the other, and the sum is rounded once.
    """
    operands = [x, weight] if bias is None else [x, weight, bias]
    attrs = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    return call_of("real_conv2d", operands, **attrs, accum_dtype="float64")


def _real_conv2d(o: Operation) -> relax.TensorType:
    o.count(2, 3)
    (shape, dtype), (weights, weight_dtype) = o.tensor(0, rank=4), o.tensor(1, rank=4)
    o.require(dtype == weight_dtype == "float32", f"multiplies {dtype} by {weight_dtype}, not float32")
    filters, kernel_h, kernel_w, per_group = weights
    groups = int(o.attr("groups"))
    fits = groups > 0 and shape[3] == per_group * groups and filters % groups == 0
    o.require(fits, f"{shape[3]} channels and {filters} filters of {per_group} do not make {groups} groups")
    if len(o.call.args) == 3:
        o.require(o.tensor(2, rank=1) == ((filters,), "float32"), f"has a bias of {o.tensor(2)}")
    height, width = o.window(shape, (kernel_h, kernel_w), o.ints("dilation", 2, 1))
    return tensor_type((shape[0], height, width, filters), "float32")


RULES: dict[str, Rule] = {
    "real_conv2d": _real_conv2d,
}
