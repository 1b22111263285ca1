"""Convolutions and dense layers: sums of products, returned as accumulators."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type
from service.compiler.qnn.types import QuantizedType

ACCUMULATORS = ("int32", "int64", "float32")


def conv2d(
    x: relax.Expr,
    weight: relax.Expr,
    bias: relax.Expr | None,
    in_type: QuantizedType,
    weight_type: QuantizedType,
    *,
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    accum_dtype: str = "int32",
) -> relax.Call:
    """Returns sum((x - zero_point_x) * (weight - zero_point_w)) + bias, as accumulators.

    With `accum_dtype="float32"`, operands may be stored as float32 (`ops.simulated`).

    Args:
        x: `[N, H, W, C]`, the storage of `in_type` (per-tensor).
        weight: `[O, KH, KW, C / groups]`, the storage of `weight_type` (per-tensor, or per-axis with axis 0). It may be
            computed while the model runs, but then no kernel computes the layer.
        bias: `[O]` of `accum_dtype`, quantized with scale s_x * s_w and zero point 0.
        padding: top, left, bottom, right; padded elements are real zeros, that is, the input's zero point.

    Returns:
        `[N, (H + top + bottom - dilation * (KH - 1) - 1) // stride + 1, …, O]` of `accum_dtype`.
    """
    return call_of(
        "conv2d",
        [x, weight] if bias is None else [x, weight, bias],
        in_type=in_type,
        weight_type=weight_type,
        strides=strides,
        padding=padding,
        dilation=dilation,
        groups=groups,
        accum_dtype=accum_dtype,
    )


def conv2d_transpose(
    x: relax.Expr,
    weight: relax.Expr,
    bias: relax.Expr | None,
    in_type: QuantizedType,
    weight_type: QuantizedType,
    *,
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0),
    output_padding: Sequence[int] = (0, 0),
    accum_dtype: str = "int32",
) -> relax.Call:
    """A transposed convolution: each input element adds its multiple of the kernel to a window of the output.

    Output (h, w) is the sum of (x[i, j] - zero_point_x) * (weight[p, q] - zero_point_w) over i * stride + p - top = h
    and j * stride + q - left = w. The operands are as for `conv2d`.

    Args:
        padding: top, left, bottom, right: rows and columns that are removed from the full output; top and left must be
            less than the kernel's size.
        output_padding: rows and columns that are added at the bottom and on the right, counted as in ONNX and PyTorch.

    Returns:
        `[N, (H - 1) * stride + KH - top - bottom + output_padding, …, O]` of `accum_dtype`.
    """
    return call_of(
        "conv2d_transpose",
        [x, weight] if bias is None else [x, weight, bias],
        in_type=in_type,
        weight_type=weight_type,
        strides=strides,
        padding=padding,
        output_padding=output_padding,
        accum_dtype=accum_dtype,
    )


def dense(
    x: relax.Expr,
    weight: relax.Expr,
    bias: relax.Expr | None,
    in_type: QuantizedType,
    weight_type: QuantizedType,
    *,
    accum_dtype: str = "int32",
) -> relax.Call:
    """Multiplies `[N, K]` by `[O, K]` transposed, giving accumulators `[N, O]`. Types and bias are as for `conv2d`."""
    args = [x, weight] if bias is None else [x, weight, bias]
    return call_of("dense", args, in_type=in_type, weight_type=weight_type, accum_dtype=accum_dtype)


def _conv2d(o: Operation) -> relax.TensorType:
    o.count(2, 3)
    n, _, _, channels = shape = o.stored(0, o.per_tensor("in_type"), rank=4)
    out_channels, kernel_h, kernel_w, per_group = _weights(o, rank=4)
    groups = int(o.attr("groups"))
    o.require(
        groups > 0 and channels == per_group * groups and out_channels % groups == 0,
        f"{channels} channels and {out_channels} filters of {per_group} do not form {groups} groups",
    )
    height, width = o.window(shape, (kernel_h, kernel_w), o.ints("dilation", 2, 1))
    return tensor_type((n, height, width, out_channels), _accumulate(o, out_channels))


def _conv2d_transpose(o: Operation) -> relax.TensorType:
    o.count(2, 3)
    n, *sizes, channels = o.stored(0, o.per_tensor("in_type"), rank=4)
    out_channels, *kernel, weight_channels = _weights(o, rank=4)
    o.require(channels == weight_channels, f"the input has {channels} channels, but the filters have {weight_channels}")
    padding, strides, more = o.ints("padding", 4, 0), o.ints("strides", 2, 1), o.ints("output_padding", 2, 0)
    o.require(
        padding[0] < kernel[0] and padding[1] < kernel[1],
        f"padding {list(padding)} is too large for a kernel of {kernel}",
    )
    grown = [
        (size - 1) * strides[axis] + kernel[axis] - padding[axis] - padding[axis + 2] + more[axis]
        for axis, size in enumerate(sizes)
    ]
    o.require(min(grown) > 0, f"the output size {grown} is not positive")
    return tensor_type((n, *grown, out_channels), _accumulate(o, out_channels))


def _dense(o: Operation) -> relax.TensorType:
    o.count(2, 3)
    rows, depth = o.stored(0, o.per_tensor("in_type"), rank=2)
    out_channels, weight_depth = _weights(o, rank=2)
    o.require(depth == weight_depth, f"input rows have {depth} elements, but weight rows have {weight_depth}")
    return tensor_type((rows, out_channels), _accumulate(o, out_channels))


def _accumulate(o: Operation, out_channels: int) -> str:
    """Checks what all of these operators share; returns the accumulator's dtype."""
    accum_dtype = str(o.attr("accum_dtype"))
    o.require(accum_dtype in ACCUMULATORS, f"accum_dtype {accum_dtype} is not one of {', '.join(ACCUMULATORS)}")
    if o.count(2, 3) == 3:
        shape, dtype = o.tensor(2, rank=1)
        o.require(shape == (out_channels,), f"the bias has shape {list(shape)}, not [{out_channels}]")
        o.require(dtype == accum_dtype, f"the bias is {dtype}, but the accumulators are {accum_dtype}")
    return accum_dtype


def _weights(o: Operation, rank: int) -> tuple[int, ...]:
    weight_type = o.quantized("weight_type")
    o.require(weight_type.blocks is None, "weights must not be quantized in blocks")
    o.require(weight_type.axis in (None, 0), f"weights must be quantized along axis 0, not {weight_type.axis}")
    return o.stored(1, weight_type, rank)


RULES: dict[str, Rule] = {
    "conv2d": _conv2d,
    "conv2d_transpose": _conv2d_transpose,
    "dense": _dense,
}
