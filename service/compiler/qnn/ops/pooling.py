"""Pooling windows, means and sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, same_storage, tensor_type
from service.compiler.qnn.types import QuantizedType


def avg_pool2d(
    x: relax.Expr,
    in_type: QuantizedType,
    out_type: QuantizedType,
    *,
    pool_size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int] = (0, 0, 0, 0),
    count_include_pad: bool = False,
    adaptive: bool = False,
) -> relax.Call:
    """Returns the mean over each window of `[N, H, W, C]`. Padding: top, left, bottom, right.

    Padded elements are not counted; with `count_include_pad` they are, as real zeros.

    Args:
        adaptive: true if the model specifies the size of the result. Some runtimes have a separate kernel for this.
    """
    window: dict[str, Any] = {"pool_size": pool_size, "strides": strides, "padding": padding}
    window |= {"count_include_pad": count_include_pad, **({"adaptive": True} if adaptive else {})}
    return call_of("avg_pool2d", [x], in_type=in_type, out_type=out_type, **window)


def max_pool2d(
    x: relax.Expr,
    in_type: QuantizedType,
    out_type: QuantizedType,
    *,
    pool_size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int] = (0, 0, 0, 0),
) -> relax.Call:
    """Returns the largest element of each window of `[N, H, W, C]`. Padding is never the largest. Padding: top, left,
    bottom, right.
    """
    window = {"pool_size": pool_size, "strides": strides, "padding": padding}
    return call_of("max_pool2d", [x], in_type=in_type, out_type=out_type, **window)


def mean(
    x: relax.Expr, in_type: QuantizedType, out_type: QuantizedType, *, axes: Sequence[int], keepdims: bool
) -> relax.Call:
    """Returns the mean over `axes` (not negative), in real values."""
    return call_of("mean", [x], in_type=in_type, out_type=out_type, axes=sorted(axes), keepdims=keepdims)


def sum_(
    x: relax.Expr, in_type: QuantizedType, out_type: QuantizedType, *, axes: Sequence[int], keepdims: bool
) -> relax.Call:
    """Returns the sum over `axes` (not negative), in real values."""
    return call_of("sum", [x], in_type=in_type, out_type=out_type, axes=sorted(axes), keepdims=keepdims)


def _window_type(o: Operation) -> relax.TensorType:
    o.count(1)
    n, _, _, channels = shape = o.stored(0, o.per_tensor("in_type"), rank=4)
    pool_size = o.ints("pool_size", 2, 1)
    top, left, bottom, right = o.ints("padding", 4, 0)
    o.require(
        max(top, bottom) < pool_size[0] and max(left, right) < pool_size[1], "padding is not smaller than the pool size"
    )
    height, width = o.window(shape, pool_size, (1, 1))
    return tensor_type((n, height, width, channels), same_storage(o))


def _mean(o: Operation) -> relax.TensorType:
    o.count(1)
    shape = o.stored(0, o.per_tensor("in_type"))
    axes = {int(axis) for axis in o.attr("axes")}
    o.require(bool(axes) and axes <= set(range(len(shape))), f"axes {sorted(axes)} do not fit the shape {list(shape)}")
    kept = [
        1 if axis in axes else dim for axis, dim in enumerate(shape) if bool(o.attr("keepdims")) or axis not in axes
    ]
    return tensor_type(kept, same_storage(o))


RULES: dict[str, Rule] = {
    "avg_pool2d": _window_type,
    "max_pool2d": _window_type,
    "mean": _mean,
    "sum": _mean,
}
