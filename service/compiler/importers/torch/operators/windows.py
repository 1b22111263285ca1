"""Poolings of rows `[N, C, L]` and volumes `[N, C, D, H, W]`, dilated ones, and adaptive maxima."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.operators import pooling, real, volumes
from service.compiler.importers.torch.operators.dilating import max_pool, of_positions
from service.compiler.importers.torch.values import UNKNOWN, Value

_MOST_TAPS = 256  # elements of a window along one axis, each of which becomes an operator


def _adaptive_max_pool(positions: int) -> Callable[..., Any]:
    def convert(node: Node, input: Any, output_size: Any) -> Any:
        """Converts adaptive pooling, whose second result, the positions, is not computed."""
        x = node.tensor(input)
        wanted, shape = node.each(output_size, positions, 1), list(x.shape[-positions:])
        even = all(size % count == 0 for size, count in zip(shape, wanted, strict=True))
        node.require_supported(even, f"divides {shape} into {wanted} windows of different sizes")
        cell = [size // count for size, count in zip(shape, wanted, strict=True)]
        none = [(0, 0)] * positions
        return [max_pool(node, x, cell, cell, none, [1] * positions), UNKNOWN]

    return convert


def _as_image(rule: Callable[..., Value], lists: int) -> Callable[..., Value]:
    """Returns the rule of an operator on rows `[N, C, L]`: that of images with one row.

    Args:
        lists: the number of arguments after the operand that are one number for each dimension.
    """

    def convert(node: Node, input: Any, *arguments: Any, **named: Any) -> Value:
        x = node.tensor(input)
        node.require_supported(len(x.shape) in (2, 3), f"on a tensor with {len(x.shape)} dimensions, not 2 or 3")
        shape = [*x.shape[:-1], 1, x.shape[-1]] if len(x.shape) == 3 else [1, x.shape[0], 1, x.shape[1]]
        image = Value(node.emit(relax.op.reshape(x.expr, shape), "image"), x.quantized, x.exact_scale)
        given = [_with_row(node, each, 0 if index == 2 else 1) for index, each in enumerate(arguments[:lists])]
        made = rule(node, image, *given, *arguments[lists:], **named)
        whole = [*x.shape[:-1], made.shape[-1]]
        return Value(node.emit(relax.op.reshape(made.expr, whole)), made.quantized, made.exact_scale)

    return convert


def _with_row(node: Node, value: Any, default: int) -> Any:
    items = node.sizes(value)
    return [default, *items] if items else items


def _chosen(stored: Callable[..., Value], plain: Callable[..., Value]) -> Callable[..., Value]:
    def convert(node: Node, input: Any, *arguments: Any, **named: Any) -> Value:
        x = node.tensor(input)
        return (plain if x.quantized is None else stored)(node, x, *arguments, **named)

    return convert


def _avg_pool3d(
    node: Node,
    input: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: Any = False,
    count_include_pad: Any = True,
    divisor_override: Any = None,
) -> Value:
    """Converts the average of windows of real values: a convolution with equal weights, in float64."""
    x = node.real_tensor(input)
    node.require_supported(not node.flag(ceil_mode) and divisor_override is None, "rounds the number of windows up")
    window, around = node.each(kernel_size, 3, 1), node.each(padding, 3, 0)
    steps = window if stride in ((), [], None) else node.each(stride, 3, 1)
    total: Value = node.value(relax.op.astype(x.expr, "float64"), None)
    counts = np.ones(x.shape[-3:])
    for index, (size, step, pad) in enumerate(zip(window, steps, around, strict=True)):
        axis = len(x.shape) - 3 + index
        node.require_supported(size <= _MOST_TAPS, f"has a window of {size} elements; at most {_MOST_TAPS}")
        total = volumes.padded_axis(node, total, axis, (pad, pad))
        span = total.shape[axis]
        node.require(size <= span, f"has a window of {size}, which is larger than the {span} padded elements")
        count = (span - size) // step + 1
        ends = [(tap, tap + (count - 1) * step + 1) for tap in range(size)]
        parts = [node.emit(relax.op.strided_slice(total.expr, [axis], [a], [b], [step]), "tap") for a, b in ends]
        total = Value(reduce(lambda one, other: node.emit(relax.op.add(one, other), "sum"), parts))
        widths = [(pad, pad) if index == each else (0, 0) for each in range(3)]
        padded = np.pad(counts, widths)
        counts = np.sum([np.take(padded, range(a, b, step), index) for a, b in ends], axis=0)
    divisors = np.full_like(counts, math.prod(window)) if node.flag(count_include_pad) else counts
    mean = node.emit(relax.op.divide(total.expr, relax.const(divisors, "float64")), "mean")
    return node.value(relax.op.astype(mean, "float32"), None)


def _adaptive_avg_pool3d(node: Node, input: Any, output_size: Any) -> Value:
    x = node.real_tensor(input)
    wanted, shape = node.each(output_size, 3, 1), list(x.shape[-3:])
    even = all(size % count == 0 for size, count in zip(shape, wanted, strict=True))
    node.require_supported(even, f"divides {shape} into {wanted} windows of different sizes")
    return _avg_pool3d(node, x, [size // count for size, count in zip(shape, wanted, strict=True)])


_AVG_POOL = _chosen(pooling.avg_pool2d, real.RULES["aten::avg_pool2d"])
_ADAPTIVE = _chosen(pooling.adaptive_avg_pool2d, real.RULES["aten::adaptive_avg_pool2d"])
RULES: dict[str, Callable[..., Any]] = {
    "aten::adaptive_avg_pool1d": _as_image(_ADAPTIVE, 1),
    "aten::adaptive_avg_pool3d": _adaptive_avg_pool3d,
    "aten::adaptive_max_pool1d": _adaptive_max_pool(1),
    "aten::adaptive_max_pool2d": _adaptive_max_pool(2),
    "aten::adaptive_max_pool3d": _adaptive_max_pool(3),
    "aten::avg_pool1d": _as_image(_AVG_POOL, 3),
    "aten::avg_pool3d": _avg_pool3d,
    "aten::max_pool1d": of_positions(1),
    "aten::max_pool3d": of_positions(3),
    "aten::quantized_max_pool1d": of_positions(1),
    "quantized::max_pool1d": of_positions(1),
}
