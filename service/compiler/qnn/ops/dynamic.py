"""Operators of dynamic quantization, whose scales and zero points are found while the model runs.

Between `dynamic_quantize` and `dynamic_scale` stands a `dense` or `conv2d`, whose activations are of zero point 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type
from service.compiler.qnn.ops.real import reduced_axes
from service.compiler.qnn.types import QuantizedType

COLUMNS = 3  # of parameters: the scale, the zero point, and the factor that takes real values to stored ones
DENSE, CONV2D, DEPTHWISE = "dense", "conv2d", "depthwise_conv2d"  # kernels, which quantize and scale in their own ways
_KERNELS = (DENSE, CONV2D, DEPTHWISE)


def dynamic_parameters(
    x: relax.Expr, *, axes: Sequence[int], shared: Sequence[int], symmetric: bool, kernel: str
) -> relax.Call:
    """The range of `x` (float32) -> `COLUMNS` parameters of its 8-bit quantization, float32.

    `axes` (not negative, the last one among them) become 1, except the last, which becomes `COLUMNS`.

    Args:
        shared: other axes along which a runtime may have one range too; each value is repeated along them then.
        symmetric: whether the zero point is 0, where the runtime leaves that to the model.
        kernel: `DENSE`, `CONV2D` or `DEPTHWISE`.
    """
    attrs = {"axes": sorted(axes), "shared": sorted(shared), "symmetric": symmetric, "kernel": kernel}
    return call_of("dynamic_parameters", [x], **attrs)


def dynamic_quantize(
    x: relax.Expr, parameters: relax.Expr, *, kernel: str, padding: Sequence[int] = (0, 0, 0, 0)
) -> relax.Call:
    """float32 -> int8, by the `parameters` of its range.

    Args:
        padding: of `[N, H, W, C]`: rows and columns of zero points at its top, left, bottom and right.
    """
    return call_of("dynamic_quantize", [x, parameters], kernel=kernel, padding=padding)


def dynamic_scale(
    sums: relax.Expr,
    parameters: relax.Expr,
    weight_sums: relax.Expr,
    bias: relax.Expr | None,
    weight_type: QuantizedType,
    *,
    kernel: str,
) -> relax.Call:
    """(sums - zero point * weight_sums) * scale * scale of the weights + bias, float32.

    Args:
        sums: `[…, O]` int32, of products of stored values.
        parameters: of the activations' ranges; axes of length 1 are repeated.
        weight_sums: `[O]` int32, of each filter's stored weights.
        bias: `[O]` float32.
        weight_type: symmetric, per-tensor or per-axis over 0.
    """
    operands = [sums, parameters, weight_sums, *([] if bias is None else [bias])]
    return call_of("dynamic_scale", operands, weight_type=weight_type, kernel=kernel)


def _kernel(o: Operation) -> None:
    o.require(str(o.attr("kernel")) in _KERNELS, f"does not know the kernel {o.attr('kernel')}")


def _dynamic_parameters(o: Operation) -> relax.TensorType:
    o.count(1)
    _kernel(o)
    (shape, dtype), axes = o.tensor(0), reduced_axes(o)
    shared = [int(axis) for axis in o.attr("shared")]
    o.require(dtype == "float32", f"takes the range of {dtype}, not float32")
    known = set(range(len(shape)))
    o.require(len(shape) - 1 in axes and set(axes) <= known, f"axes {axes} of the shape {list(shape)}")
    o.require(set(shared) <= known - set(axes), f"shared axes {shared} beside {axes} of {list(shape)}")
    o.require(0 not in shape, "takes the range of no elements")
    kept = [1 if axis in axes else dim for axis, dim in enumerate(shape[:-1])]
    return tensor_type([*kept, COLUMNS], "float32")


def _dynamic_quantize(o: Operation) -> relax.TensorType:
    o.count(2)
    _kernel(o)
    (shape, dtype), padding = o.tensor(0), o.ints("padding", 4, 0)
    o.require(dtype == "float32", f"quantizes {dtype}, not float32")
    o.require(bool(shape), "quantizes a scalar")
    given = _parameters(o, shape)
    if not any(padding):
        return tensor_type(shape, "int8")
    o.require(set(given[1:-1]) <= {1}, f"pads by parameters of {list(given)}")
    o.require(len(shape) == 4, f"pads {len(shape)} dimensions, not [N, H, W, C]")
    top, left, bottom, right = padding
    n, height, width, channels = shape
    return tensor_type((n, height + top + bottom, width + left + right, channels), "int8")


def _dynamic_scale(o: Operation) -> relax.TensorType:
    count = o.count(3, 4)
    _kernel(o)
    (shape, dtype), weight_type = o.tensor(0), o.quantized("weight_type")
    o.require(dtype == "int32" and bool(shape), f"scales {dtype} {list(shape)}, not sums of int32")
    _parameters(o, shape)
    o.require(o.tensor(2, rank=1) == (shape[-1:], "int32"), f"has sums of weights of {o.tensor(2)}")
    o.require(count == 3 or o.tensor(3, rank=1) == (shape[-1:], "float32"), "has a bias that is not one float32 each")
    o.require(not any(weight_type.zero_points), f"has weights of {weight_type}, whose zero point is not 0")
    o.require(weight_type.blocks is None and weight_type.axis in (None, 0), f"has weights of {weight_type}")
    o.require(len(weight_type.scales) in (1, shape[-1]), f"has {len(weight_type.scales)} scales for {shape[-1]} sums")
    return tensor_type(shape, "float32")


def _parameters(o: Operation, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the second operand, which has to be parameters of a tensor of `shape`."""
    given, dtype = o.tensor(1)
    fits = len(given) == len(shape) and all(mine in (1, dim) for mine, dim in zip(given[:-1], shape[:-1], strict=True))
    o.require(fits and given[-1] == COLUMNS, f"has parameters of {list(given)} for {list(shape)}")
    o.require(dtype == "float32", f"has parameters of {dtype}, not float32")
    return given


RULES: dict[str, Rule] = {
    "dynamic_parameters": _dynamic_parameters,
    "dynamic_quantize": _dynamic_quantize,
    "dynamic_scale": _dynamic_scale,
}
