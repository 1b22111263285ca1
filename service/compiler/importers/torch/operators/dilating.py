"""Maxima of windows along any number of dimensions, which may be dilated. Operands may be stored values."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.builder.pooling import overhang
from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.values import Value

_MOST_TAPS = 256  # elements of a window along one axis, each of which becomes an operator


def max_pool(
    node: Node, input: Any, window: list[int], step: list[int], sides: list[tuple[int, int]], apart: list[int]
) -> Value:
    """Returns the largest element of each window, along one axis after the other."""
    x = node.tensor(input)
    fill = -np.inf if x.quantized is None else float(x.quantized.min)
    for index, (size, stride, (before, after), dilation) in enumerate(zip(window, step, sides, apart, strict=True)):
        axis = len(x.shape) - len(window) + index
        node.require_supported(size <= _MOST_TAPS, f"has a window of {size} elements; at most {_MOST_TAPS}")
        if before or after:
            widths = [0] * (2 * len(x.shape))
            widths[2 * axis : 2 * axis + 2] = before, after
            x = node.value(relax.op.nn.pad(x.expr, widths, pad_value=fill), x.quantized)
        reach = dilation * (size - 1)
        node.require(reach < x.shape[axis], f"has a window of {reach + 1}, but only {x.shape[axis]} padded elements")
        count = (x.shape[axis] - reach - 1) // stride + 1
        ends = [(tap * dilation, tap * dilation + (count - 1) * stride + 1) for tap in range(size)]
        parts = [node.emit(relax.op.strided_slice(x.expr, [axis], [a], [b], [stride]), "tap") for a, b in ends]
        most = reduce(lambda one, other: node.emit(relax.op.maximum(one, other), "most"), parts)
        x = Value(most, x.quantized, x.exact_scale)
    return x


def of_positions(positions: int) -> Callable[..., Value]:
    def convert(
        node: Node,
        input: Any,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: Any = False,
    ) -> Value:
        x = node.tensor(input)
        node.require_supported(len(x.shape) > positions, f"on a tensor with {len(x.shape)} dimensions")
        window, apart = node.each(kernel_size, positions, 1), node.each(dilation, positions, 1)
        steps = window if stride in ((), [], None) else node.each(stride, positions, 1)
        sides = []
        shape = x.shape[-positions:]
        for size, tap, step, pad, space in zip(
            shape, window, steps, node.each(padding, positions, 0), apart, strict=True
        ):
            node.require(2 * pad <= tap, f"has padding {pad} for a window of {tap}; at most half of it is allowed")
            more = overhang(
                node, size, space * (tap - 1) + 1, step, pad, pad, ceil="inside" if node.flag(ceil_mode) else ""
            )
            sides.append((pad, max(more, 0)))
        return max_pool(node, x, window, steps, sides, apart)

    return convert


max_pool2d = of_positions(2)
