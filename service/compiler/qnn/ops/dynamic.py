"""Operators of dynamic quantization, whose scales and zero points are computed while the model runs.

A `dense` or `conv2d` between `dynamic_quantize` and `dynamic_scale` computes the sums. The activations of this `dense`
or `conv2d` have zero point 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type

SCALE, ZERO_POINT, FACTOR = "scale", "zero_point", "factor"  # the factor maps real values to stored ones
_PARAMETERS = (SCALE, ZERO_POINT, FACTOR)
DENSE, CONV2D, DEPTHWISE = "dense", "conv2d", "depthwise_conv2d"  # kernels; each quantizes and scales differently
# LiteRT's own kernels for layers that its default delegate does not take
BUILTIN_DENSE, BUILTIN_CONV2D, BUILTIN_GROUPS = "builtin_dense", "builtin_conv2d", "builtin_grouped_conv2d"
BLOCKS = "dense_in_blocks"  # the delegate's kernel of dense layers whose weights have a scale for each block
_KERNELS = (DENSE, CONV2D, DEPTHWISE, BUILTIN_DENSE, BUILTIN_CONV2D, BUILTIN_GROUPS, BLOCKS)


def dynamic_parameter(
    low: relax.Expr,
    high: relax.Expr,
    *,
    parameter: str,
    shared: Sequence[int] = (),
    symmetric: bool = False,
    reduced: bool = False,
    kernel: str,
) -> relax.Call:
    """Computes one parameter of 8-bit quantization for each range, from the range's smallest and largest values.

    Both operands are `[…, 1]` float32; the result is float32 of the same shape.

    Args:
        parameter: `SCALE`, `ZERO_POINT` or `FACTOR`.
        shared: axes along which some runtimes use one range for all rows. These runtimes repeat the parameter along
            these axes.
        symmetric: true if the zero point is 0. This argument has an effect only for runtimes in which the model decides
            this.
        reduced: true if only half of the stored values are used. This argument has an effect only for runtimes that
            support this.
        kernel: one of the kernels above.
    """
    attrs = {"shared": sorted(shared), "symmetric": symmetric, "reduced": reduced, "kernel": kernel}
    return call_of("dynamic_parameter", [low, high], parameter=parameter, **attrs)


def dynamic_quantize(x: relax.Expr, zero_point: relax.Expr, factor: relax.Expr, *, kernel: str) -> relax.Call:
    """Quantizes float32 to int8. Axes of length 1 of the parameters are repeated."""
    return call_of("dynamic_quantize", [x, zero_point, factor], kernel=kernel)


def dynamic_pad(x: relax.Expr, zero_point: relax.Expr, padding: Sequence[int]) -> relax.Call:
    """Pads an image `[N, H, W, C]` int8 with zero points. `padding` is in the order top, left, bottom, right.

    Args:
        zero_point: float32, `[N, 1, 1, 1]`.
    """
    return call_of("dynamic_pad", [x, zero_point], padding=padding)


def dynamic_scale(
    sums: relax.Expr,
    scale: relax.Expr,
    zero_point: relax.Expr,
    weight_sums: relax.Expr,
    weight_scales: relax.Expr,
    bias: relax.Expr | None,
    *,
    kernel: str,
) -> relax.Call:
    """Returns (sums - zero point * weight_sums) * scale * weight_scales + bias, float32.

    Args:
        sums: `[…, O]` int32, sums of products of stored values.
        scale, zero_point: parameters of the activations' ranges; axes of length 1 are repeated.
        weight_sums: `[O]` int32, the sum of each filter's stored weights.
        weight_scales: `[O]` or `[1]` float32.
        bias: `[O]` float32.
    """
    operands = [sums, scale, zero_point, weight_sums, weight_scales, *([] if bias is None else [bias])]
    return call_of("dynamic_scale", operands, kernel=kernel)


def _kernel(o: Operation) -> None:
    o.require(str(o.attr("kernel")) in _KERNELS, f"kernel {o.attr('kernel')} is not one of {', '.join(_KERNELS)}")


def _dynamic_parameter(o: Operation) -> relax.TensorType:
    o.count(2)
    _kernel(o)
    (shape, dtype), (highs, high_dtype) = o.tensor(0), o.tensor(1)
    shared = [int(axis) for axis in o.attr("shared")]
    o.require(dtype == high_dtype == "float32", f"ranges must be float32, not {dtype} and {high_dtype}")
    o.require(shape == highs and shape[-1:] == (1,), f"ranges {list(shape)} and {list(highs)} do not fit")
    o.require(set(shared) <= set(range(len(shape) - 1)), f"shared axes {shared} are not outer axes of {list(shape)}")
    o.require(str(o.attr("parameter")) in _PARAMETERS, f"unknown parameter {o.attr('parameter')}")
    return tensor_type(shape, "float32")


def _dynamic_quantize(o: Operation) -> relax.TensorType:
    o.count(3)
    _kernel(o)
    shape, dtype = o.tensor(0)
    o.require(dtype == "float32", f"the input must be float32, not {dtype}")
    for index in (1, 2):
        _parameter(o, index, shape)
    return tensor_type(shape, "int8")


def _dynamic_pad(o: Operation) -> relax.TensorType:
    o.count(2)
    ((n, height, width, channels), dtype), (top, left, bottom, right) = o.tensor(0, rank=4), o.ints("padding", 4, 0)
    o.require(dtype == "int8", f"the input must be int8, not {dtype}")
    o.require(o.tensor(1) == ((n, 1, 1, 1), "float32"), f"zero points {o.tensor(1)} do not fit the input")
    return tensor_type((n, height + top + bottom, width + left + right, channels), "int8")


def _dynamic_scale(o: Operation) -> relax.TensorType:
    count = o.count(5, 6)
    _kernel(o)
    shape, dtype = o.tensor(0)
    o.require(dtype == "int32" and bool(shape), f"sums must be an int32 tensor, not {dtype} {list(shape)}")
    for index in (1, 2):
        _parameter(o, index, shape)
    o.require(o.tensor(3) == (shape[-1:], "int32"), f"weight sums {o.tensor(3)} do not fit the sums")
    scales, scale_dtype = o.tensor(4, rank=1)
    o.require(scale_dtype == "float32" and scales[0] in (1, shape[-1]), f"weight scales {o.tensor(4)} do not fit")
    o.require(count == 5 or o.tensor(5) == (shape[-1:], "float32"), "the bias must have one float32 per channel")
    return tensor_type(shape, "float32")


def _parameter(o: Operation, index: int, shape: tuple[int, ...]) -> None:
    """Requires that an operand is a parameter of a tensor of `shape`."""
    given, dtype = o.tensor(index)
    fits = len(given) == len(shape) and all(mine in (1, dim) for mine, dim in zip(given[:-1], shape[:-1], strict=True))
    o.require(bool(shape) and fits and given[-1] == 1, f"parameters {list(given)} do not fit the shape {list(shape)}")
    o.require(dtype == "float32", f"parameters must be float32, not {dtype}")


RULES: dict[str, Rule] = {
    "dynamic_parameter": _dynamic_parameter,
    "dynamic_quantize": _dynamic_quantize,
    "dynamic_pad": _dynamic_pad,
    "dynamic_scale": _dynamic_scale,
}
