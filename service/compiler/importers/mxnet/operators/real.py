"""Operators that stay in float between and after MXNet's quantized layers, and operators without effect.

Sums equal MXNet's bit for bit. Softmax differs from MXNet's by at most a few units in the last place, as for every
other format (`importers/real.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers import real
from service.compiler.importers.builder import movement
from service.compiler.importers.builder import pooling as builder
from service.compiler.importers.mxnet.node import BYTES, Node, Tensor, Value
from service.compiler.importers.real import Real


def _operand(node: Node) -> Tensor:
    node.count(1)
    return node.tensor(0, "float32")


def identity(node: Node) -> list[Value]:
    """Returns the operand. Dropout and copies do nothing at inference."""
    node.count(1)
    return [node.tensor(0, "float32", *BYTES)]


def add(node: Node) -> list[Value]:
    """`elemwise_add`. In older files, it is called `_plus`."""
    node.count(2)
    a, b = (node.tensor(index, "float32") for index in range(2))
    node.require(a.shape == b.shape, f"adds tensors of different shapes, {list(a.shape)} and {list(b.shape)}")
    return node.outputs(relax.op.add(a.expr, b.expr))


def flatten(node: Node) -> list[Value]:
    x = _operand(node)
    return [Tensor(movement.reshape(node, x.expr, rows_of(node, x)))]


def rows_of(node: Node, x: Tensor) -> tuple[int, int]:
    """Returns the shape `[N, K]` of an operand `[N, …]`."""
    node.require(len(x.shape) >= 1, "has a scalar as its input")
    return x.shape[0], math.prod(x.shape[1:])


def softmax(kind: str = "Softmax", *, negated: bool = False) -> Callable[[Node], list[Value]]:
    """Returns the rule of `softmax`, `log_softmax` or `softmin` (src/operator/nn/softmax-inl.h), which divide the
    elements by the temperature first.
    """

    def convert(node: Node) -> list[Value]:
        x, temperature = _operand(node).expr, node.attributes.number("temperature", 1.0)
        if node.attributes.flag("use_length"):
            node.unsupported("uses the length of each row (use_length), which cannot be compiled")
        if temperature != 1:
            x = node.step("Div", x, np.array(temperature, np.float32))
        if negated:
            x = node.step("Neg", x)
        return node.standard(kind, x, axis=node.attributes.integer("axis", -1, least=-8))

    return convert


def softmax_output(node: Node) -> list[Value]:
    """`SoftmaxOutput` (src/operator/softmax_output-inl.h). Its labels are used in training only."""
    x = node.tensor(0, "float32")
    if node.attributes.flag("multi_output"):
        return _softmax(node, x, node.axis(1, len(x.shape)))
    return _softmax(node, x, len(x.shape) - 1 if node.attributes.flag("preserve_shape") else None)


def softmax_activation(node: Node) -> list[Value]:
    """`SoftmaxActivation` (src/operator/nn/softmax_activation-inl.h)."""
    x, mode = _operand(node), node.choice("mode", "instance", "instance", "channel")
    fits = mode == "instance" or len(x.shape) > 2
    node.require(fits, f"has the mode channel, but its input {list(x.shape)} has no channels")
    return _softmax(node, x, 1 if mode == "channel" else None)


def _softmax(node: Node, x: Tensor, axis: int | None) -> list[Value]:
    """Computes the softmax along an axis; or along all axes except the first, as if they were one axis."""
    rows = x.shape if axis is not None else rows_of(node, x)
    if rows == x.shape:
        return node.outputs(real.softmax(Real(node.emit, x.expr), 1 if axis is None else axis))
    flat = movement.reshape(node, x.expr, rows, "rows")
    made = node.emit(real.softmax(Real(node.emit, flat), 1), "of_rows")
    return [Tensor(movement.reshape(node, made, x.shape))]


def pooling(node: Node) -> list[Value]:
    """Pools real values (src/operator/nn/mkldnn/mkldnn_pooling-inl.h). Averages differ from MXNet's by at most a few
    units in the last place.
    """
    x = _operand(node)
    if len(x.shape) == 3:
        return _pooled_rows(node, x)
    is_max, windows, counted = geometry(node, x)
    made = Real(node.emit, x.expr)
    if windows.size == x.shape[2:] and not any(windows.padding):
        return node.outputs(relax.op.max(x.expr, [2, 3], True) if is_max else made.mean(x.expr, [2, 3]))
    builder.check_places(node, math.prod(windows.size))
    return node.outputs(
        builder.largest(made, windows) if is_max else builder.average(made, windows, (*counted, *counted))
    )


def _pooled_rows(node: Node, x: Tensor) -> list[Value]:
    """Pools rows `[N, C, L]`."""
    attributes, is_max = node.attributes, node.choice("pool_type", "max", "max", "avg") == "max"
    if attributes.flag("global_pool"):
        return node.standard("GlobalMaxPool" if is_max else "GlobalAveragePool", x.expr)
    node.choice("pooling_convention", "valid", "valid")
    options: dict[str, Any] = {
        "kernel_shape": attributes.integers("kernel", least=1),
        "strides": attributes.integers("stride", least=1) or (1,),
        "pads": (attributes.integers("pad", least=0) or (0,)) * 2,
    }
    if is_max:
        return node.standard("MaxPool", x.expr, **options)
    counts = int(attributes.flag("count_include_pad", True))
    return node.standard("AveragePool", x.expr, **options, count_include_pad=counts)


def geometry(node: Node, x: Tensor) -> tuple[bool, builder.Windows, builder.Pair]:
    """Returns true if the pooling of an image takes maxima, the windows, and the padding that counts in an average.
    The pooling convention `full` rounds the size of the output up (`CalculatePoolingPadding`).
    """
    attributes, is_max = node.attributes, node.choice("pool_type", "max", "max", "avg") == "max"
    check_image(node, x)
    node.choice("layout", "NCHW", "NCHW", "None")
    if attributes.flag("global_pool"):
        return is_max, builder.Windows((2, 3), (x.shape[2], x.shape[3]), (1, 1), builder.NO_SIDES), (0, 0)
    size, strides = attributes.pair("kernel", (1, 1)), attributes.pair("stride", (1, 1))
    pads = attributes.pair("pad", (0, 0), least=0)
    ceil = "any" if node.choice("pooling_convention", "valid", "valid", "full") == "full" else ""
    bottom, right = (
        max(pad, builder.overhang(node, extent, window, stride, pad, pad, ceil=ceil))
        for extent, window, stride, pad in zip(x.shape[2:], size, strides, pads, strict=True)
    )
    builder.check_padded(node, math.prod(x.shape[:2]), (x.shape[2], x.shape[3]), (*pads, bottom, right))
    if not is_max and (bottom, right) != pads:
        node.unsupported(
            "averages windows that extend beyond the padding (pooling_convention full), which cannot be compiled"
        )
    counts = not is_max and attributes.flag("count_include_pad", True)
    return is_max, builder.Windows((2, 3), size, strides, (*pads, bottom, right)), pads if counts else (0, 0)


def check_image(node: Node, x: Tensor) -> None:
    node.require_supported(len(x.shape) == 4, f"has an input of shape {list(x.shape)}, not [N, C, H, W]")
