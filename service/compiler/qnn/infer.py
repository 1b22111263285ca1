"""Type inference of the QNN operators: the shape and dtype of each result, and a refusal of what is not well typed.

This is also the check on what an import child hands over, so it takes nothing for granted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax

from service.compiler.qnn import types
from service.compiler.qnn.operation import Operation

ACCUMULATORS = ("int32", "int64", "float32")


def _result(shape: Sequence[int], dtype: str) -> relax.TensorType:
    return relax.TensorType(list(shape), dtype)


def _quantize(o: Operation) -> relax.TensorType:
    o.count(1)
    shape, dtype = o.tensor(0)
    o.require(dtype == "float32", f"quantizes float32, not {dtype}")
    out_type = o.quantized("out_type")
    o.fits_axis(shape, out_type)
    return _result(shape, out_type.storage)


def _dequantize(o: Operation) -> relax.TensorType:
    o.count(1)
    return _result(o.stored(0, o.quantized("in_type")), "float32")


def _requantize(o: Operation) -> relax.TensorType:
    o.count(1)
    return _result(o.stored(0, o.quantized("in_type")), o.per_tensor("out_type").storage)


def _accumulate(o: Operation, out_channels: int) -> str:
    """Checks what `conv2d` and `dense` share; the accumulator's dtype."""
    accum_dtype = str(o.attr("accum_dtype"))
    o.require(accum_dtype in ACCUMULATORS, f"accum_dtype {accum_dtype} is none of {', '.join(ACCUMULATORS)}")
    if o.count(2, 3) == 3:
        shape, dtype = o.tensor(2, rank=1)
        o.require(shape == (out_channels,), f"a bias of {list(shape)} for {out_channels} output channels")
        o.require(dtype == accum_dtype, f"a bias of {dtype} for accumulators of {accum_dtype}")
    return accum_dtype


def _weights(o: Operation, rank: int) -> tuple[int, ...]:
    weight_type = o.quantized("weight_type")
    o.require(weight_type.axis in (None, 0), f"weights are quantized along axis {weight_type.axis}, not 0")
    return o.stored(1, weight_type, rank)


def _conv2d(o: Operation) -> relax.TensorType:
    o.count(2, 3)
    n, _, _, channels = shape = o.stored(0, o.per_tensor("in_type"), rank=4)
    out_channels, kernel_h, kernel_w, per_group = _weights(o, rank=4)
    groups = int(o.attr("groups"))
    o.require(
        groups > 0 and channels == per_group * groups and out_channels % groups == 0,
        f"{channels} channels and {out_channels} filters of {per_group} do not make {groups} groups",
    )
    height, width = o.window(shape, (kernel_h, kernel_w), o.ints("dilation", 2, 1))
    return _result((n, height, width, out_channels), _accumulate(o, out_channels))


def _dense(o: Operation) -> relax.TensorType:
    o.count(2, 3)
    rows, depth = o.stored(0, o.per_tensor("in_type"), rank=2)
    out_channels, weight_depth = _weights(o, rank=2)
    o.require(depth == weight_depth, f"rows of {depth} elements, but weights of {weight_depth}")
    return _result((rows, out_channels), _accumulate(o, out_channels))


def _binary(o: Operation) -> relax.TensorType:
    o.count(2)
    lhs = o.stored(0, o.per_tensor("lhs_type"))
    rhs = o.stored(1, o.per_tensor("rhs_type"))
    rank = max(len(lhs), len(rhs))
    pairs = list(zip((1,) * (rank - len(lhs)) + lhs, (1,) * (rank - len(rhs)) + rhs, strict=True))
    o.require(all(a == b or 1 in (a, b) for a, b in pairs), f"{list(lhs)} and {list(rhs)} do not broadcast")
    return _result([max(a, b) if 0 not in (a, b) else 0 for a, b in pairs], o.per_tensor("out_type").storage)


def _concatenate(o: Operation) -> relax.TensorType:
    o.count(1)
    fields = list(getattr(o.call.args[0].ty, "fields", None) or ())
    in_types = [types.parse(str(text)) for text in o.attr("in_types")]
    o.require(bool(fields) and len(fields) == len(in_types), "needs one type for each of at least one part")
    axis, total, first = int(o.attr("axis")), 0, None
    for index, (field, in_type) in enumerate(zip(fields, in_types, strict=True)):
        shape, dtype = o.static(field, f"part {index}")
        o.require(in_type.axis is None, f"part {index} is quantized per axis")
        o.require(dtype == in_type.storage, f"part {index} is {dtype}, but its type is {in_type}")
        o.require(0 <= axis < len(shape), f"axis {axis} is outside the shape {list(shape)}")
        rest = (*shape[:axis], *shape[axis + 1 :])
        first = first or (rest, shape)
        o.require(rest == first[0], f"part {index} has shape {list(shape)}, the first {list(first[1])}")
        total += shape[axis]
    assert first is not None
    return _result((*first[1][:axis], total, *first[1][axis + 1 :]), o.per_tensor("out_type").storage)


def _pool(o: Operation) -> relax.TensorType:
    o.count(1)
    n, _, _, channels = shape = o.stored(0, o.per_tensor("in_type"), rank=4)
    pool_size = o.ints("pool_size", 2, 1)
    top, left, bottom, right = o.ints("padding", 4, 0)
    o.require(
        max(top, bottom) < pool_size[0] and max(left, right) < pool_size[1], "some windows would lie in the padding"
    )
    height, width = o.window(shape, pool_size, (1, 1))
    return _result((n, height, width, channels), _same_storage(o))


def _mean(o: Operation) -> relax.TensorType:
    o.count(1)
    shape = o.stored(0, o.per_tensor("in_type"))
    axes = {int(axis) for axis in o.attr("axes")}
    o.require(bool(axes) and axes <= set(range(len(shape))), f"axes {sorted(axes)} of the shape {list(shape)}")
    kept = [
        1 if axis in axes else dim for axis, dim in enumerate(shape) if bool(o.attr("keepdims")) or axis not in axes
    ]
    return _result(kept, _same_storage(o))


def _softmax(o: Operation) -> relax.TensorType:
    o.count(1)
    shape = o.stored(0, o.per_tensor("in_type"))
    o.require(len(shape) > 0, "a scalar has no last axis")
    o.require(float(o.attr("beta")) > 0, "beta has to be positive")
    return _result(shape, o.per_tensor("out_type").storage)


def _same_storage(o: Operation) -> str:
    in_type, out_type = o.quantized("in_type"), o.per_tensor("out_type")
    o.require(in_type.storage == out_type.storage, f"reads {in_type.storage}, but writes {out_type.storage}")
    return out_type.storage


def _inferring(rule: Callable[[Operation], relax.TensorType]) -> Callable[[relax.Call, relax.BlockBuilder], Any]:
    return lambda call, _builder: rule(Operation(call))


INFER_TYPE: dict[str, Callable[[relax.Call, relax.BlockBuilder], Any]] = {
    name: _inferring(rule)
    for name, rule in {
        "quantize": _quantize,
        "dequantize": _dequantize,
        "requantize": _requantize,
        "conv2d": _conv2d,
        "dense": _dense,
        "add": _binary,
        "mul": _binary,
        "concatenate": _concatenate,
        "avg_pool2d": _pool,
        "max_pool2d": _pool,
        "mean": _mean,
        "softmax": _softmax,
    }.items()
}
