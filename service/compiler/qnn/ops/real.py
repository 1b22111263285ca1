"""Operators on float32 activations, for the parts of a model that are not quantized."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type

OPERAND_DTYPES = ("float32", "bfloat16")


def real_conv2d(
    x: relax.Expr,
    weight: relax.Expr,
    bias: relax.Expr | None,
    *,
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    operand_dtype: str = "float32",
) -> relax.Call:
    """sum(x * weight) + bias of float32: `[N, H, W, C]`, `[O, KH, KW, C / groups]`, `[O]` -> `[N, …, O]`.

    A result is 0, to which the products are added one after the other by fused multiply-adds, row by row of the kernel,
    column by column, channel by channel; plus the bias.

    Args:
        operand_dtype: what `x` and `weight` are rounded to before they are multiplied: float32, or bfloat16, whose
            products are added in pairs (`numerics.bfloat16`).
    """
    operands = [x, weight] if bias is None else [x, weight, bias]
    attrs = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    return call_of("real_conv2d", operands, **attrs, accum_dtype="float32", operand_dtype=operand_dtype)


# Functions of each value.
FUNCTIONS = ("erf", "exp", "logistic", "tanh")


def real_function(function: str, x: relax.Expr) -> relax.Call:
    """A function of `FUNCTIONS` of each float32 value: `relax.qnn.real_exp` and its like."""
    return call_of(f"real_{function}", [x])


# How the terms of a sum are added.
SEQUENTIAL = "sequential"  # one after the other
FOURS = "fours"  # four of them, then that to the sum
PACKETS = "packets"  # eight partial sums, from an aligned address on
LANES = "lanes"  # 16 partial sums along the last axis, the i-th term to that of i % 16, then folded
STRIPS = "strips"  # four partial sums, the i-th term to that of i % 4; those that fill no strip come last, one by one
PARTIAL_SUMS = 16
FOLDS = (8, 1, 2, 4)  # in turn: the i-th partial sum and that of i ^ 8 become one, then those of i ^ 1, and so on


def real_sum(x: relax.Expr, *, axes: Sequence[int], order: str, rows: int = 1) -> relax.Call:
    """Sums of float32 over `axes` (not negative), which stay with a length of 1. Each step is rounded to float32.

    Args:
        order: `SEQUENTIAL`, `FOURS`, `STRIPS` or `PACKETS`, where terms count by the axes in order, the last one
            fastest; or `LANES`, along the last axis.
        rows: of packets: how many sums lie behind each other in memory, from an aligned address on.
    """
    return call_of("real_sum", [x], axes=sorted(axes), order=order, rows=rows)


EIGHTS = 8  # partial sums of `real_squares`, and of `PACKETS`


def real_mean(x: relax.Expr) -> relax.Call:
    """The mean of float32 along the last axis, which stays with a length of 1: in float64, by the partial sums of
    `LANES`, rounded once."""
    return call_of("real_mean", [x])


def real_squares(x: relax.Expr) -> relax.Call:
    """The sum of the squares of float32 along the last axis, which stays with a length of 1.

    ONNX Runtime's order for the variance of a layer norm, with AVX2 and FMA (measured on 1.31.1): the i-th square is
    joined to the partial sum of i % 8 by a fused multiply-add, as long as there are eight; the eight become four, two,
    one, the upper half added to the lower. Of what is left four squares are rounded and added, one after the other;
    then the others by fused multiply-adds.
    """
    return call_of("real_squares", [x])


def real_fma(a: relax.Expr, b: relax.Expr, c: relax.Expr) -> relax.Call:
    """a * b + c of float32 values that broadcast, rounded once."""
    return call_of("real_fma", [a, b, c])


def reduced_axes(o: Operation) -> list[int]:
    return [int(axis) for axis in o.attr("axes")]


def _real_sum(o: Operation) -> relax.TensorType:
    o.count(1)
    (shape, dtype), axes = o.tensor(0), reduced_axes(o)
    o.require(dtype == "float32", f"adds {dtype}, not float32")
    o.require(bool(axes) and set(axes) <= set(range(len(shape))), f"axes {axes} of the shape {list(shape)}")
    order = str(o.attr("order"))
    o.require(order in (SEQUENTIAL, FOURS, STRIPS, PACKETS, LANES), f"does not know the order {order}")
    o.require(order != LANES or axes == [len(shape) - 1], f"adds lanes along the axes {axes} of {len(shape)}")
    o.require(o.integer("rows") > 0, f"has {o.integer('rows')} rows")
    return tensor_type([1 if axis in axes else dim for axis, dim in enumerate(shape)], "float32")


def _real_row(o: Operation) -> relax.TensorType:
    o.count(1)
    shape, dtype = o.tensor(0)
    o.require(dtype == "float32", f"reduces {dtype}, not float32")
    o.require(bool(shape) and shape[-1] > 0, f"reduces rows of the shape {list(shape)}")
    return tensor_type([*shape[:-1], 1], "float32")


def _real_fma(o: Operation) -> relax.TensorType:
    o.count(3)
    tensors = [o.tensor(place) for place in range(3)]
    o.require(all(dtype == "float32" for _, dtype in tensors), "multiplies and adds float32 only")
    shapes = [shape for shape, _ in tensors]
    rank = max(map(len, shapes))
    sizes = [{1, *each} - {1} for each in zip(*((*[1] * (rank - len(shape)), *shape) for shape in shapes), strict=True)]
    o.require(all(len(each) < 2 for each in sizes), f"has operands of {shapes}, which do not broadcast")
    return tensor_type([next(iter(each), 1) for each in sizes], "float32")


def _real_function(o: Operation) -> relax.TensorType:
    o.count(1)
    shape, dtype = o.tensor(0)
    o.require(dtype == "float32", f"is a function of float32, not of {dtype}")
    return tensor_type(shape, "float32")


def require_float_sums(o: Operation) -> None:
    """Of products of operands that are rounded, or not."""
    o.require(str(o.attr("accum_dtype")) == "float32", f"accumulates in {o.attr('accum_dtype')}")
    operands = str(o.attr("operand_dtype"))
    o.require(operands in OPERAND_DTYPES, f"rounds its operands to {operands}")


def _real_conv2d(o: Operation) -> relax.TensorType:
    o.count(2, 3)
    (shape, dtype), (weights, weight_dtype) = o.tensor(0, rank=4), o.tensor(1, rank=4)
    o.require(dtype == weight_dtype == "float32", f"multiplies {dtype} by {weight_dtype}, not float32")
    filters, kernel_h, kernel_w, per_group = weights
    groups = int(o.attr("groups"))
    fits = groups > 0 and shape[3] == per_group * groups and filters % groups == 0
    o.require(fits, f"{shape[3]} channels and {filters} filters of {per_group} do not make {groups} groups")
    require_float_sums(o)
    if len(o.call.args) == 3:
        o.require(o.tensor(2, rank=1) == ((filters,), "float32"), f"has a bias of {o.tensor(2)}")
    height, width = o.window(shape, (kernel_h, kernel_w), o.ints("dilation", 2, 1))
    return tensor_type((shape[0], height, width, filters), "float32")


RULES: dict[str, Rule] = {
    "real_conv2d": _real_conv2d,
    "real_fma": _real_fma,
    "real_mean": _real_row,
    "real_squares": _real_row,
    "real_sum": _real_sum,
    **dict.fromkeys((f"real_{name}" for name in FUNCTIONS), _real_function),
}
