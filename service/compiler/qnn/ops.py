"""The operators of the QNN dialect, as functions that build calls.

Activations are `[N, H, W, C]` or `[N, K]`; convolution weights are `[O, KH, KW, I/groups]` (a depthwise convolution
is a grouped one). Every quantized operand has a `QuantizedType`, carried as an attribute in MLIR's text form, so
that a module prints, parses back and compares structurally like any other Relax module.

`conv2d` and `dense` give accumulators; `requantize` takes them to storage. A fused activation is nothing but the
storage bounds of an output type. What rounding `requantize` and its fellows use is not said here: that is the
numerics mode's to decide (`qnn/numerics`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Op, register_op_attr

from service.compiler.qnn import infer
from service.compiler.qnn.types import QuantizedType

PREFIX = "relax.qnn."


def quantize(x: relax.Expr, out_type: QuantizedType) -> relax.Call:
    """float32 -> the storage of `out_type`, same shape."""
    return _call("quantize", [x], out_type=out_type)


def dequantize(x: relax.Expr, in_type: QuantizedType) -> relax.Call:
    """The storage of `in_type` -> float32, same shape: scale * (x - zero_point)."""
    return _call("dequantize", [x], in_type=in_type)


def requantize(x: relax.Expr, in_type: QuantizedType, out_type: QuantizedType) -> relax.Call:
    """Accumulators or storage of `in_type` -> storage of `out_type`, same shape, clamped to its storage bounds.

    `in_type` may be per-axis; `out_type` is per-tensor.
    """
    return _call("requantize", [x], in_type=in_type, out_type=out_type)


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
    """sum((x - zero_point_x) * (weight - zero_point_w)) + bias, as accumulators.

    Args:
        x: `[N, H, W, C]`, the storage of `in_type` (per-tensor).
        weight: `[O, KH, KW, C / groups]`, the storage of `weight_type` (per-tensor, or per-axis with axis 0).
        bias: `[O]` of `accum_dtype`, quantized with scale s_x * s_w and zero point 0.
        padding: top, left, bottom, right; padded elements are real zeros, that is, the input's zero point.

    Returns:
        `[N, (H + top + bottom - dilation * (KH - 1) - 1) // stride + 1, …, O]` of `accum_dtype`.
    """
    return _call(
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


def dense(
    x: relax.Expr,
    weight: relax.Expr,
    bias: relax.Expr | None,
    in_type: QuantizedType,
    weight_type: QuantizedType,
    *,
    accum_dtype: str = "int32",
) -> relax.Call:
    """`[N, K]` times `[O, K]` transposed -> accumulators `[N, O]`; types and bias as for `conv2d`."""
    args = [x, weight] if bias is None else [x, weight, bias]
    return _call("dense", args, in_type=in_type, weight_type=weight_type, accum_dtype=accum_dtype)


def add(
    lhs: relax.Expr, rhs: relax.Expr, lhs_type: QuantizedType, rhs_type: QuantizedType, out_type: QuantizedType
) -> relax.Call:
    """lhs + rhs in real values, broadcasting as NumPy does; all types per-tensor."""
    return _call("add", [lhs, rhs], lhs_type=lhs_type, rhs_type=rhs_type, out_type=out_type)


def mul(
    lhs: relax.Expr, rhs: relax.Expr, lhs_type: QuantizedType, rhs_type: QuantizedType, out_type: QuantizedType
) -> relax.Call:
    """lhs * rhs in real values, broadcasting as NumPy does; all types per-tensor."""
    return _call("mul", [lhs, rhs], lhs_type=lhs_type, rhs_type=rhs_type, out_type=out_type)


def concatenate(
    parts: Sequence[relax.Expr], in_types: Sequence[QuantizedType], out_type: QuantizedType, axis: int
) -> relax.Call:
    """`parts` joined along `axis` (not negative), each rescaled to `out_type` where its own type differs."""
    return _call("concatenate", [relax.Tuple(list(parts))], in_types=in_types, out_type=out_type, axis=axis)


def avg_pool2d(
    x: relax.Expr,
    in_type: QuantizedType,
    out_type: QuantizedType,
    *,
    pool_size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int] = (0, 0, 0, 0),
) -> relax.Call:
    """Mean over each window of `[N, H, W, C]`; padded elements are not counted. Padding: top, left, bottom, right."""
    return _pool("avg_pool2d", x, in_type, out_type, pool_size, strides, padding)


def max_pool2d(
    x: relax.Expr,
    in_type: QuantizedType,
    out_type: QuantizedType,
    *,
    pool_size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int] = (0, 0, 0, 0),
) -> relax.Call:
    """Largest of each window of `[N, H, W, C]`; padded elements never win. Padding: top, left, bottom, right."""
    return _pool("max_pool2d", x, in_type, out_type, pool_size, strides, padding)


def mean(
    x: relax.Expr, in_type: QuantizedType, out_type: QuantizedType, *, axes: Sequence[int], keepdims: bool
) -> relax.Call:
    """Mean over `axes` (not negative), in real values."""
    return _call("mean", [x], in_type=in_type, out_type=out_type, axes=sorted(axes), keepdims=keepdims)


def softmax(x: relax.Expr, in_type: QuantizedType, out_type: QuantizedType, *, beta: float = 1.0) -> relax.Call:
    """exp(beta * x) / sum(exp(beta * x)) over the last axis, in real values."""
    return _call("softmax", [x], in_type=in_type, out_type=out_type, beta=beta)


def _pool(
    name: str,
    x: relax.Expr,
    in_type: QuantizedType,
    out_type: QuantizedType,
    pool_size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
) -> relax.Call:
    return _call(name, [x], in_type=in_type, out_type=out_type, pool_size=pool_size, strides=strides, padding=padding)


def _call(name: str, args: Sequence[relax.Expr], **attrs: Any) -> relax.Call:
    """A call of `relax.qnn.<name>`, its attributes in the forms that TVM prints and parses."""
    return relax.Call(
        Op.get(PREFIX + name),
        list(args),
        tvm.ir.make_node("ir.DictAttrs", **{key: _plain(value) for key, value in attrs.items()}),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, QuantizedType):
        return str(value)
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tvm.ir.Node | tvm.runtime.Object) and not hasattr(value, "__iter__"):
        return value
    return [_plain(item) for item in value]


def with_operands(call: relax.Call, *args: relax.Expr, **attrs: Any) -> relax.Call:
    """`call` with other operands and some attributes changed."""
    return _call(name_of(call) or "", args, **{**dict(call.attrs.items()), **attrs})


def name_of(expr: relax.Expr) -> str | None:
    """`conv2d` for a call of `relax.qnn.conv2d`; None for anything else."""
    if isinstance(expr, relax.Call) and isinstance(expr.op, Op) and expr.op.name.startswith(PREFIX):
        return str(expr.op.name[len(PREFIX) :])
    return None


def _parseable(name: str) -> Callable[..., relax.Call]:
    """What `R.qnn.<name>(…)` means to the TVMScript parser: positional operands, keyword attributes."""

    def call(*args: Any, **attrs: Any) -> relax.Call:
        operands = [relax.Tuple(list(arg)) if isinstance(arg, tuple | list) else arg for arg in args]
        return _call(name, operands, **attrs)

    return call


def _register() -> None:
    namespace = SimpleNamespace()
    for name, infer_type in infer.INFER_TYPE.items():
        register_op_attr(PREFIX + name, "FInferType", infer_type)
        register_op_attr(PREFIX + name, "FPurity", True)
        Op.get(PREFIX + name).set_num_inputs(-1)  # bias is optional; `infer` checks the count
        setattr(namespace, name, _parseable(name))
    from tvm.relax.script import parser

    parser.qnn = namespace


_register()
