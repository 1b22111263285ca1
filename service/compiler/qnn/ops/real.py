"""Operators on float32 activations, for the parts of a model that are not quantized."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from service.compiler.qnn.expressions import power
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
    """Returns sum(x * weight) + bias in float32: `[N, H, W, C]`, `[O, KH, KW, C / groups]`, `[O]` -> `[N, …, O]`.

    A result starts as 0. The products are added one after the other by fused multiply-adds: row by row of the kernel,
    column by column, channel by channel. Then the bias is added.

    Args:
        operand_dtype: the type that `x` and `weight` are rounded to before they are multiplied: float32, or bfloat16,
            whose products are added in pairs (`numerics.sums.bfloat16`).
    """
    operands = [x, weight] if bias is None else [x, weight, bias]
    attrs = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    return call_of("real_conv2d", operands, **attrs, accum_dtype="float32", operand_dtype=operand_dtype)


# Functions of each value.
FUNCTIONS = ("erf", "exp", "logistic", "tanh")


def real_function(function: str, x: relax.Expr) -> relax.Call:
    """Applies a function of `FUNCTIONS` to each float32 value: `relax.qnn.real_exp` and so on."""
    return call_of(f"real_{function}", [x])


def real_power(x: relax.Expr, *, exponent: float) -> relax.Call:
    """Returns x**exponent of each float32 value. A negative x gives NaN, unless Eigen multiplies for the exponent.

    Args:
        exponent: a float32: an integer from -3 to 7, or a number that is not an integer and below 2**20.
    """
    return call_of("real_power", [x], exponent=exponent)


# The orders in which the terms of a sum are added.
SEQUENTIAL = "sequential"  # one after the other
FOURS = "fours"  # the sum of four terms is added to the total
PACKETS = "packets"  # eight partial sums, starting at an aligned address
LANES = "lanes"  # 16 partial sums along the last axis, term i added to sum i % 16; then folded
# four partial sums: term i is added to sum i % 4; terms after the last whole strip are added at the end, one by one
STRIPS = "strips"
PARTIAL_SUMS = 16
FOLDS = (8, 1, 2, 4)  # the steps of a fold: partial sums i and i ^ 8 are added, then i and i ^ 1, and so on


def real_sum(x: relax.Expr, *, axes: Sequence[int], order: str, rows: int = 1) -> relax.Call:
    """Sums float32 over `axes` (not negative), which stay with a length of 1. Each step is rounded to float32.

    Args:
        order: `SEQUENTIAL`, `FOURS`, `STRIPS` and `PACKETS` number the terms along the axes in order, the last axis
            fastest. `LANES` requires that the last axis is summed.
        rows: for `PACKETS`: the number of rows that are contiguous in memory. The first starts at an aligned address.
    """
    return call_of("real_sum", [x], axes=sorted(axes), order=order, rows=rows)


EIGHTS = 8  # partial sums of `real_squares`, and of `PACKETS`


def real_mean(x: relax.Expr) -> relax.Call:
    """Returns the mean of float32 along the last axis, which stays with a length of 1.

    The mean is computed in float64, in the order of `LANES`, and rounded once.
    """
    return call_of("real_mean", [x])


def real_squares(x: relax.Expr) -> relax.Call:
    """Returns the sum of the squares of float32 along the last axis, which stays with a length of 1.

    The order is ONNX Runtime's for the variance of a layer norm, with AVX2 and FMA (measured on 1.31.1). While at least
    eight squares remain, square i is added to partial sum i % 8 by a fused multiply-add. The eight sums are reduced to
    four, two and one: each time, the upper half is added to the lower. Of the remaining squares, the first four are
    rounded and added one after the other; the others are added by fused multiply-adds.
    """
    return call_of("real_squares", [x])


def real_fma(a: relax.Expr, b: relax.Expr, c: relax.Expr) -> relax.Call:
    """Returns a * b + c of float32 values that broadcast, rounded once."""
    return call_of("real_fma", [a, b, c])


def reduced_axes(o: Operation) -> list[int]:
    return [int(axis) for axis in o.attr("axes")]


def _real_sum(o: Operation) -> relax.TensorType:
    o.count(1)
    (shape, dtype), axes = o.tensor(0), reduced_axes(o)
    o.require(dtype == "float32", f"the input must be float32, not {dtype}")
    o.require(bool(axes) and set(axes) <= set(range(len(shape))), f"axes {axes} do not fit the shape {list(shape)}")
    order = str(o.attr("order"))
    o.require(order in (SEQUENTIAL, FOURS, STRIPS, PACKETS, LANES), f"unknown order {order}")
    o.require(order != LANES or axes == [len(shape) - 1], f"lanes must be along the last axis, not {axes}")
    o.require(o.integer("rows") > 0, f"rows {o.integer('rows')} is not positive")
    return tensor_type([1 if axis in axes else dim for axis, dim in enumerate(shape)], "float32")


def _real_row(o: Operation) -> relax.TensorType:
    o.count(1)
    shape, dtype = o.tensor(0)
    o.require(dtype == "float32", f"the input must be float32, not {dtype}")
    o.require(bool(shape) and shape[-1] > 0, f"the shape {list(shape)} has no rows with elements")
    return tensor_type([*shape[:-1], 1], "float32")


def _real_fma(o: Operation) -> relax.TensorType:
    o.count(3)
    tensors = [o.tensor(index) for index in range(3)]
    o.require(all(dtype == "float32" for _, dtype in tensors), "operands must be float32")
    shapes = [shape for shape, _ in tensors]
    rank = max(map(len, shapes))
    sizes = [{1, *each} - {1} for each in zip(*((*[1] * (rank - len(shape)), *shape) for shape in shapes), strict=True)]
    o.require(all(len(each) < 2 for each in sizes), f"{shapes} do not broadcast")
    return tensor_type([next(iter(each), 1) for each in sizes], "float32")


def _real_function(o: Operation) -> relax.TensorType:
    o.count(1)
    shape, dtype = o.tensor(0)
    o.require(dtype == "float32", f"the operand must be float32, not {dtype}")
    return tensor_type(shape, "float32")


def _real_power(o: Operation) -> relax.TensorType:
    exponent = float(o.attr("exponent"))
    o.require(power.is_supported(exponent), f"the exponent {exponent} is not supported")
    return _real_function(o)


def require_float_sums(o: Operation) -> None:
    """Checks the attributes of a sum of float32 products. The operands may be rounded to another type first."""
    o.require(str(o.attr("accum_dtype")) == "float32", f"cannot accumulate in {o.attr('accum_dtype')}")
    operands = str(o.attr("operand_dtype"))
    o.require(operands in OPERAND_DTYPES, f"operand_dtype {operands} is not one of {', '.join(OPERAND_DTYPES)}")


def _real_conv2d(o: Operation) -> relax.TensorType:
    o.count(2, 3)
    (shape, dtype), (weights, weight_dtype) = o.tensor(0, rank=4), o.tensor(1, rank=4)
    o.require(dtype == weight_dtype == "float32", f"operands must be float32, not {dtype} and {weight_dtype}")
    filters, kernel_h, kernel_w, per_group = weights
    groups = int(o.attr("groups"))
    fits = groups > 0 and shape[3] == per_group * groups and filters % groups == 0
    o.require(fits, f"{shape[3]} channels and {filters} filters of {per_group} do not form {groups} groups")
    require_float_sums(o)
    if len(o.call.args) == 3:
        o.require(
            o.tensor(2, rank=1) == ((filters,), "float32"), f"the bias {o.tensor(2)} does not fit {filters} filters"
        )
    height, width = o.window(shape, (kernel_h, kernel_w), o.ints("dilation", 2, 1))
    return tensor_type((shape[0], height, width, filters), "float32")


RULES: dict[str, Rule] = {
    "real_conv2d": _real_conv2d,
    "real_fma": _real_fma,
    "real_mean": _real_row,
    "real_power": _real_power,
    "real_squares": _real_row,
    "real_sum": _real_sum,
    **dict.fromkeys((f"real_{name}" for name in FUNCTIONS), _real_function),
}
