"""Layers of float32 that stay between quantized ones: those that were excluded from the quantization, and those for
which MXNet has no quantized operator.

Convolutions and dense layers add their products in an order of their own, so that their results differ from MXNet's by
a few units in the last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from service.compiler.importers.mxnet.attributes import Attributes
from service.compiler.importers.mxnet.node import Node, Tensor, Value
from service.compiler.importers.mxnet.operators.elementwise import Operand
from service.compiler.importers.mxnet.operators.movement import named_axes
from service.core.models.arrays import Array

_CHANNELS = 1
_EXTREME = {"argmax": "ArgMax", "argmin": "ArgMin"}
_REDUCTIONS = {"mean": "ReduceMean", "sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin"}


def convolution(node: Node) -> list[Value]:
    """`Convolution` of float32."""
    return node.outputs_of(convolved(node, node.attributes, node.real(1), _bias(node)))


def convolved(node: Node, attributes: Attributes, weights: Operand, bias: Array | None) -> Operand:
    """Applies a convolution to the first input."""
    node.choice("layout", "NCHW", "NCHW", "NCW", "None", of=attributes)
    kernel = attributes.integers("kernel", least=1)
    node.require(node.extents(weights)[2:] == kernel, f"has weights that do not fit a kernel of {list(kernel)}")
    return node.step("Conv", node.real(0), weights, bias, **_windows(attributes, len(kernel)))


def _windows(attributes: Attributes, rank: int) -> dict[str, Any]:
    ones = (1,) * rank
    return {
        "strides": attributes.integers("stride", least=0) or ones,
        "dilations": attributes.integers("dilate", least=0) or ones,
        "pads": (attributes.integers("pad", least=0) or (0,) * rank) * 2,
        "group": attributes.integer("num_group", 1),
    }


def deconvolution(node: Node) -> list[Value]:
    """`Deconvolution` of float32 (src/operator/nn/deconvolution-inl.h). Weights are `[C, O / groups, KH, KW]`."""
    attributes = node.attributes
    kernel = attributes.integers("kernel", least=1)
    options = _windows(attributes, len(kernel))
    extra = attributes.integers("adj", least=0)
    if any(target := attributes.integers("target_shape", least=0)):
        # the padding is such that the result has the target's size (`InferPad`)
        x, reach = node.tensor(0, "float32"), np.subtract(kernel, 1) * options["dilations"] + 1
        strides = np.array(options["strides"])
        totals = (np.array(x.shape[2:]) - 1) * strides + reach - np.array(target)
        node.require(bool((totals >= 0).all()), f"has the target shape {list(target)}, which is too large")
        extra = tuple(int(each) for each in totals % 2)
        options["pads"] = tuple(int(each) for each in (totals + 1) // 2) * 2
    bias = None if attributes.flag("no_bias", True) else _bias(node, default=True)
    options["output_padding"] = extra or (0,) * len(kernel)
    return node.standard("ConvTranspose", node.real(0), node.real(1), bias, **options)


def fully_connected(node: Node) -> list[Value]:
    """`FullyConnected` of float32."""
    return node.outputs_of(connected(node, node.attributes, node.array(1, "float32", 2), _bias(node)))


def connected(node: Node, attributes: Attributes, weights: Array, bias: Array | None) -> Operand:
    """Applies a dense layer to the first input."""
    x = node.tensor(0, "float32")
    if attributes.flag("flatten", True):
        rows = node.step("Reshape", x.expr, np.array((x.shape[0], math.prod(x.shape[1:])), np.int64))
        return node.step("Gemm", rows, weights, bias, transB=1)
    product = node.step("MatMul", x.expr, np.ascontiguousarray(weights.T))
    return product if bias is None else node.step("Add", product, bias)


def _bias(node: Node, *, default: bool = False) -> Array | None:
    return None if node.attributes.flag("no_bias", default) else node.array(2, "float32", 1)


def batch_norm(node: Node) -> list[Value]:
    """`BatchNorm` at inference."""
    x, axis = node.tensor(0, "float32"), node.attributes.integer("axis", _CHANNELS, least=-8)
    node.require_supported(node.axis(axis, len(x.shape)) == _CHANNELS, f"normalizes axis {axis}; only 1 is supported")
    gamma, beta, mean, variance = (node.array(index, "float32", 1) for index in range(1, 5))
    if node.attributes.flag("fix_gamma", True):
        gamma = np.ones_like(gamma)
    epsilon = node.attributes.number("eps", 1e-3)
    return node.standard("BatchNormalization", x.expr, gamma, beta, mean, variance, epsilon=epsilon)


def instance_norm(node: Node) -> list[Value]:
    epsilon = node.attributes.number("eps", 1e-3)
    return node.standard("InstanceNormalization", node.real(0), node.real(1), node.real(2), epsilon=epsilon)


def layer_norm(node: Node) -> list[Value]:
    x, axis = node.tensor(0, "float32"), node.attributes.integer("axis", -1, least=-8)
    what = f"normalizes axis {axis}; only the last can be compiled"
    node.require_supported(node.axis(axis, len(x.shape)) == len(x.shape) - 1, what)
    epsilon = node.attributes.number("eps", 1e-5)
    return node.standard("LayerNormalization", x.expr, node.real(1), node.real(2), axis=-1, epsilon=epsilon)


def group_norm(node: Node) -> list[Value]:
    """`GroupNorm`. MXNet scales groups; ONNX's operator set 20 does too."""
    groups, epsilon = node.attributes.integer("num_groups", 1), node.attributes.number("eps", 1e-5)
    return node.standard(
        "GroupNormalization", node.real(0), node.real(1), node.real(2), num_groups=groups, epsilon=epsilon
    )


def l2_normalization(node: Node) -> list[Value]:
    """`L2Normalization`: x / sqrt(sum of squares + eps), over a sample, a pixel's channels, or a channel's pixels."""
    x, mode = node.tensor(0, "float32"), node.choice("mode", "instance", "instance", "channel", "spatial")
    rank = len(x.shape)
    axes = {"instance": range(1, rank), "channel": (1,), "spatial": range(2, rank)}[mode]
    squares = node.step("ReduceSum", node.step("Mul", x.expr, x.expr), np.array([*axes], np.int64), keepdims=1)
    epsilon = np.array(node.attributes.number("eps", 1e-10), np.float32)
    return node.standard("Div", x.expr, node.step("Sqrt", node.step("Add", squares, epsilon)))


def response_norm(node: Node) -> list[Value]:
    """`LRN` (src/operator/nn/lrn-inl.h)."""
    defaults = (("alpha", "alpha", 1e-4), ("beta", "beta", 0.75), ("bias", "knorm", 2.0))
    options: dict[str, Any] = {ours: node.attributes.number(theirs, default) for ours, theirs, default in defaults}
    return node.standard("LRN", node.real(0), size=node.attributes.integer("nsize", 1), **options)


def reduction(name: str) -> Callable[[Node], list[Value]]:
    """Returns the rule of a reduction along axes, or along all others (`exclude`)."""

    def convert(node: Node) -> list[Value]:
        x = node.tensor(0, "float32")
        axes = node.axes(named_axes(node), len(x.shape)) or list(range(len(x.shape)))
        if node.attributes.flag("exclude"):
            axes = [axis for axis in range(len(x.shape)) if axis not in axes]
        keepdims = int(node.attributes.flag("keepdims"))
        if len(axes) == len(x.shape) and not keepdims:  # MXNet 1.x has no scalars
            whole = node.step(_REDUCTIONS[name], x.expr, np.array(axes, np.int64), keepdims=1)
            return node.standard("Reshape", whole, np.array([1], np.int64))
        return node.standard(_REDUCTIONS[name], x.expr, np.array(axes, np.int64), keepdims=keepdims)

    return convert


def extreme_place(name: str) -> Callable[[Node], list[Value]]:
    """Returns the rule of `argmax` or `argmin`, whose results are float32."""

    def convert(node: Node) -> list[Value]:
        node.require_supported(node.attributes.has("axis"), "has no axis, which cannot be compiled")
        axis = node.attributes.integer("axis", 0, least=-8)
        keepdims = int(node.attributes.flag("keepdims"))
        return node.standard("Cast", node.step(_EXTREME[name], node.real(0), axis=axis, keepdims=keepdims), to=1)

    return convert


def resized(node: Node) -> list[Value]:
    """`_contrib_BilinearResize2D` (src/operator/contrib/bilinear_resize-inl.h)."""
    x, attributes = node.tensor(0, "float32"), node.attributes
    node.choice("mode", "size", "size")
    _check_image(node, x)
    sizes = [
        int(extent * attributes.number(f"scale_{name}", 1.0)) if attributes.has(f"scale_{name}")
        else attributes.integer(name, 1)
        for name, extent in (("height", x.shape[2]), ("width", x.shape[3]))
    ]  # fmt: skip
    target = np.array([*x.shape[:2], *sizes], np.int64)
    coordinates = "align_corners" if attributes.flag("align_corners", True) else "half_pixel"
    options: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": coordinates}
    return node.standard("Resize", x.expr, None, None, target, **options)


def upsampled(node: Node) -> list[Value]:
    """`UpSampling` to the nearest elements, of one input. (MXNet computes `bilinear` as a Deconvolution.)"""
    node.count(1)
    x, scale = node.tensor(0, "float32"), node.attributes.integer("scale", 1)
    node.choice("sample_type", "nearest", "nearest")
    _check_image(node, x)
    factors = np.array([1, 1, scale, scale], np.float32)
    options: dict[str, Any] = {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    return node.standard("Resize", x.expr, None, factors, **options)


def adaptive_average(node: Node) -> list[Value]:
    """`_contrib_AdaptiveAvgPooling2D`, if its windows have equal sizes."""
    x = node.tensor(0, "float32")
    _check_image(node, x)
    text = node.attributes.text("output_size", "")
    given = node.attributes.integers("output_size", least=0) if text[:1] in ("(", "[") else ()
    if text and not given:
        given = (node.attributes.integer("output_size", 1),)
    sizes = (given * 2)[:2] if given else (1, 1)
    if sizes == (1, 1):
        return node.standard("GlobalAveragePool", x.expr)
    divides = all(extent % size == 0 for extent, size in zip(x.shape[2:], sizes, strict=True))
    node.require_supported(divides, f"averages {list(x.shape[2:])} to {list(sizes)}, whose windows differ in size")
    window = tuple(extent // size for extent, size in zip(x.shape[2:], sizes, strict=True))
    return node.standard("AveragePool", x.expr, kernel_shape=window, strides=window)


def embedding(node: Node) -> list[Value]:
    """`Embedding`: rows of a table, at indices that are float32. Indices outside of the table are clamped to it."""
    return node.standard("Gather", node.array(1, "float32", 2), row_indices(node, len(node.array(1, "float32", 2))))


def row_indices(node: Node, rows: int) -> Operand:
    """Returns the first input as int64 indices of a table of `rows` rows."""
    whole = node.step("Cast", node.real(0), to=7)
    return node.step("Min", node.step("Max", whole, np.array(0, np.int64)), np.array(rows - 1, np.int64))


def product(node: Node) -> list[Value]:
    """`dot` of two matrices, and `batch_dot`."""
    operands = [node.real(index) for index in range(2)]
    ranks = {len(node.extents(each)) for each in operands}
    node.require_supported(ranks in ({2}, {3}), f"multiplies tensors of {sorted(ranks)} dimensions")
    for index, name in enumerate(("transpose_a", "transpose_b")):
        if node.attributes.flag(name):
            order = (1, 0) if ranks == {2} else (0, 2, 1)
            operands[index] = node.step("Transpose", operands[index], perm=order)
    return node.standard("MatMul", *operands)


def _check_image(node: Node, x: Tensor) -> None:
    node.require_supported(len(x.shape) == 4, f"has an input of shape {list(x.shape)}, not [N, C, H, W]")
