"""Pooling, normalization, resizing, reductions and sorting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from service.compiler.importers.openvino.node import Node
from service.compiler.importers.openvino.operators.layers import padding
from service.compiler.importers.openvino.values import Value
from service.core.models.arrays import Array

Convert = Callable[[Node], list[Value]]
_COORDINATES = {
    "half_pixel": "half_pixel", "pytorch_half_pixel": "pytorch_half_pixel", "asymmetric": "asymmetric",
    "align_corners": "align_corners", "tf_half_pixel_for_nn": "tf_half_pixel_for_nn",
}  # fmt: skip
_MODES = {"nearest": "nearest", "linear": "linear", "linear_onnx": "linear", "cubic": "cubic"}
_NEAREST = {
    "round_prefer_floor": "round_prefer_floor", "round_prefer_ceil": "round_prefer_ceil", "floor": "floor",
    "ceil": "ceil", "simple": "floor",
}  # fmt: skip


def _window(node: Node) -> dict[str, Any]:
    kernel = node.attributes.integers("kernel")
    strides = node.attributes.integers("strides", (1,) * len(kernel))
    dilations = node.attributes.integers("dilations", (1,) * len(kernel))
    size = node.shape(0)[2:]
    node.require(len(size) == len(kernel) == len(strides), f"has a kernel {list(kernel)} for {list(node.shape(0))}")
    reach = [(each - 1) * dilation + 1 for each, dilation in zip(kernel, dilations, strict=True)]
    begin, end = padding(node, size, reach, strides)
    rounding = node.attributes.text("rounding_type", "floor").lower()
    node.require(rounding in ("floor", "ceil", "ceil_torch"), f"has the unknown rounding_type {rounding[:20]!a}")
    return {
        "kernel_shape": kernel,
        "strides": strides,
        "pads": (*begin, *end),
        "ceil_mode": int(rounding != "floor"),
    } | ({"dilations": dilations} if set(dilations) != {1} else {})


def max_pool(node: Node) -> list[Value]:
    """`MaxPool`. The second output of opset8, the places of the maxima, cannot be read."""
    return node.move_by("MaxPool", **_window(node))


def average_pool(node: Node) -> list[Value]:
    counts = not node.attributes.flag("exclude-pad", node.attributes.flag("exclude_pad", True))
    return node.standard("AveragePool", node.real(0), **_window(node), count_include_pad=int(counts))


def adaptive_average(node: Node) -> list[Value]:
    """`AdaptiveAvgPool`, if its windows have equal sizes."""
    node.count(2)
    size, target = node.shape(0)[2:], node.integers(1)
    node.require(len(size) == len(target) and min(target, default=0) > 0, f"has the target {list(target)[:8]}")
    divides = all(extent % each == 0 for extent, each in zip(size, target, strict=True))
    node.require_supported(divides, f"averages {list(size)} to {list(target)}, whose windows differ in size")
    window = tuple(extent // each for extent, each in zip(size, target, strict=True))
    return node.standard("AveragePool", node.real(0), kernel_shape=window, strides=window)


def reduction(op_type: str) -> Convert:
    def convert(node: Node) -> list[Value]:
        node.count(2)
        axes = np.array(node.integers(1), np.int64)
        if axes.size == 0:
            return [node.value(0)]
        return node.standard(op_type, node.real(0), axes, keepdims=int(node.attributes.flag("keep_dims")))

    return convert


def logical_reduction(name: str) -> Convert:
    """Returns the rule of `ReduceLogicalAnd` or `ReduceLogicalOr`, computed as a minimum or maximum of 0 and 1."""

    def convert(node: Node) -> list[Value]:
        whole = node.step("Cast", node.real(0), to=6)
        axes = np.array(node.integers(1), np.int64)
        made = node.step(name, whole, axes, keepdims=int(node.attributes.flag("keep_dims")))
        return node.standard("Cast", made, to=9)

    return convert


def softmax(op_type: str) -> Convert:
    def convert(node: Node) -> list[Value]:
        return node.standard(op_type, node.real(0), axis=node.attributes.integer("axis", 1))

    return convert


def mvn(node: Node) -> list[Value]:
    """`MVN` of opset6: (x - mean) / sqrt(variance + eps), or / (sqrt(variance) + eps)."""
    node.count(1, 2)
    x = node.real(0)
    rank = len(node.extents(x))
    if node.input_count == 2:
        axes = node.axes(node.integers(1), rank)
    else:  # opset2
        axes = list(range(1 if node.attributes.flag("across_channels") else 2, rank))
    eps = _number(node.attributes.number("eps", 1e-9))
    inside = node.attributes.text("eps_mode", "inside_sqrt").lower() == "inside_sqrt"
    places = np.array(axes, np.int64)
    moved = node.step("Sub", x, node.step("ReduceMean", x, places, keepdims=1))
    if not node.attributes.flag("normalize_variance", True):
        return [moved]
    variance = node.step("ReduceMean", node.step("Mul", moved, moved), places, keepdims=1)
    if inside:
        return node.standard("Div", moved, node.step("Sqrt", node.step("Add", variance, eps)))
    return node.standard("Div", moved, node.step("Add", node.step("Sqrt", variance), eps))


def normalize_l2(node: Node) -> list[Value]:
    """`NormalizeL2`: x / sqrt(sum of squares + eps), or with the maximum of sum and eps."""
    node.count(2)
    x, axes = node.real(0), np.array(node.integers(1), np.int64)
    squares = node.step("ReduceSum", node.step("Mul", x, x), axes, keepdims=1)
    mode = node.attributes.text("eps_mode", "add").lower()
    node.require(mode in ("add", "max"), f"has the unknown eps_mode {mode[:20]!a}")
    limited = node.step("Add" if mode == "add" else "Max", squares, _number(node.attributes.number("eps")))
    return node.standard("Div", x, node.step("Sqrt", limited))


def batch_norm(node: Node) -> list[Value]:
    """`BatchNormInference`. In opset1, the data are the third input."""
    node.count(5)
    order = (2, 0, 1, 3, 4) if node.layer.version in ("opset1", "opset2", "opset3", "opset4") else range(5)
    epsilon = node.attributes.number("epsilon", node.attributes.number("eps", 1e-5))
    return node.standard("BatchNormalization", *(node.real(index) for index in order), epsilon=epsilon)


def group_norm(node: Node) -> list[Value]:
    """`GroupNormalization` of opset12, which scales each channel."""
    node.count(3)
    x, groups = node.real(0), node.attributes.integer("num_groups")
    shape = node.extents(x)
    node.require(groups > 0 and shape[1] % groups == 0, f"cannot divide {shape[1]} channels into {groups} groups")
    rows = np.array((shape[0], groups, -1), np.int64)
    grouped, places = node.step("Reshape", x, rows), np.array([2], np.int64)
    moved = node.step("Sub", grouped, node.step("ReduceMean", grouped, places, keepdims=1))
    variance = node.step("ReduceMean", node.step("Mul", moved, moved), places, keepdims=1)
    root = node.step("Sqrt", node.step("Add", variance, _number(node.attributes.number("epsilon"))))
    made = node.step("Reshape", node.step("Div", moved, root), np.array(shape, np.int64))
    column = np.array((-1, *[1] * (len(shape) - 2)), np.int64)
    scale, bias = (node.step("Reshape", node.real(index), column) for index in (1, 2))
    return node.standard("Add", node.step("Mul", made, scale), bias)


def response_norm(node: Node) -> list[Value]:
    """`LRN` along the channels."""
    node.count(2)
    axes = node.axes(node.integers(1), len(node.shape(0)))
    node.require_supported(axes == [1], f"normalizes along axes {axes}; only the channels can be compiled")
    options: dict[str, Any] = {name: node.attributes.number(name) for name in ("alpha", "beta", "bias")}
    return node.standard("LRN", node.real(0), size=node.attributes.integer("size"), **options)


def interpolate(node: Node) -> list[Value]:
    """`Interpolate` of opset4 and opset11: the target's sizes or scales, along all axes or some."""
    attributes, shape = node.attributes, node.shape(0)
    is_recent = node.layer.version not in ("opset1", "opset2", "opset3")
    node.require_supported(is_recent, "is an Interpolate of opset1, which cannot be compiled")
    node.require(node.input_count >= 2, "has no target")
    by_scales = attributes.text("shape_calculation_mode", "sizes").lower() == "scales"
    recent = node.layer.version not in tuple(f"opset{number}" for number in range(4, 11))
    axes_at = 2 if recent else 3
    axes = node.axes(node.integers(axes_at), len(shape)) if node.input_count > axes_at else list(range(len(shape)))
    # before opset11, sizes and scales are inputs of their own
    values = node.constant(1 if recent or not by_scales else 2).reshape(-1)
    node.require(len(values) == len(axes), f"has {len(values)} sizes or scales for {len(axes)} axes")
    sizes = list(shape)
    for axis, value in zip(axes, values, strict=True):
        sizes[axis] = int(np.floor(np.float32(shape[axis]) * np.float32(value) + 1e-5)) if by_scales else int(value)
    mode = attributes.text("mode", "nearest").lower()
    node.require_supported(mode in _MODES, f"has the mode {mode[:20]!a}, which cannot be compiled")
    pads = (*attributes.integers("pads_begin", ()), *attributes.integers("pads_end", ()))
    node.require_supported(not any(pads), "pads its input, which cannot be compiled")
    node.require_supported(not attributes.flag("antialias"), "has antialias, which cannot be compiled")
    coordinates = attributes.text("coordinate_transformation_mode", "half_pixel").lower()
    nearest = attributes.text("nearest_mode", "round_prefer_floor").lower()
    node.require(coordinates in _COORDINATES and nearest in _NEAREST, "has an unknown mode")
    options: dict[str, Any] = {
        "mode": _MODES[mode],
        "coordinate_transformation_mode": _COORDINATES[coordinates],
        "nearest_mode": _NEAREST[nearest],
        "cubic_coeff_a": attributes.number("cube_coeff", -0.75),
    }
    if options["mode"] != "nearest":
        x, scales = node.real(0), np.array(sizes, np.int64)
        return node.standard("Resize", x, None, None, scales, **options)
    if by_scales:
        scales = np.ones(len(shape), np.float32)
        scales[axes] = values
        if [int(np.floor(extent * scale)) for extent, scale in zip(shape, scales, strict=True)] == sizes:
            return node.move_by("Resize", None, scales, **options)
    return node.move_by("Resize", None, None, np.array(sizes, np.int64), **options)


def top_k(node: Node) -> list[Value]:
    """`TopK`: the largest or smallest values and their indices."""
    node.count(2)
    mode, order = node.attributes.text("mode", "max").lower(), node.attributes.text("sort", "value").lower()
    node.require(mode in ("max", "min") and order in ("value", "none", "index"), "has an unknown mode or order")
    node.require_supported(order != "index", "sorts by index, which cannot be compiled")
    count = np.array([int(node.number(1))], np.int64)
    axis, largest = node.attributes.integer("axis"), int(mode == "max")
    values, places = node.standard("TopK", node.real(0), count, results=2, axis=axis, largest=largest, sorted=1)
    wanted = node.attributes.text("index_element_type", "i32").lower()
    return [values, places if wanted == "i64" else node.step("Cast", places, to=6)]


def cumulative_sum(node: Node) -> list[Value]:
    flags = {name: int(node.attributes.flag(name)) for name in ("exclusive", "reverse")}
    axis = node.constant(1) if node.input_count == 2 else np.array(0, np.int64)
    return node.state.standard.convert(node.label, "CumSum", [node.real(0), axis], flags, 1, node.layer.name)


def einsum(node: Node) -> list[Value]:
    operands = (node.real(index) for index in range(node.input_count))
    return node.standard("Einsum", *operands, equation=node.attributes.text("equation"))


def attention(node: Node) -> list[Value]:
    """`ScaledDotProductAttention` of opset13: softmax(q * k' * scale + mask) * v."""
    node.count(3, 5)
    q, k, v = (node.real(index) for index in range(3))
    shape, rank = node.extents(q), len(node.extents(k))
    order = (*range(rank - 2), rank - 1, rank - 2)
    scale = np.float32(node.number(4)) if node.input_count == 5 else np.float32(1 / np.sqrt(np.float32(shape[-1])))
    scores = node.step("Mul", node.step("MatMul", q, node.step("Transpose", k, perm=order)), np.array(scale))
    if node.attributes.flag("causal"):
        rows, columns = shape[-2], node.extents(k)[-2]
        hidden = np.where(np.tril(np.ones((rows, columns), bool)), np.float32(0), np.float32(-np.inf))
        scores = node.step("Add", scores, hidden.astype(np.float32))
    elif node.input_count > 3 and node.extents(node.real(3)) != ():
        mask = node.real(3)
        dtype = mask.dtype.name if isinstance(mask, np.ndarray) else str(mask.ty.dtype)
        if dtype == "bool":
            mask = node.step("Where", mask, _number(0), _number(-np.inf))
        scores = node.step("Add", scores, mask)
    return node.standard("MatMul", node.step("Softmax", scores, axis=-1), v)


def _number(value: float) -> Array:
    return np.array(value, np.float32)


IMAGES: Mapping[str, Convert] = {
    "AdaptiveAvgPool": adaptive_average,
    "AvgPool": average_pool,
    "BatchNormInference": batch_norm,
    "CumSum": cumulative_sum,
    "Einsum": einsum,
    "GroupNormalization": group_norm,
    "Interpolate": interpolate,
    "LRN": response_norm,
    "LogSoftmax": softmax("LogSoftmax"),
    "MVN": mvn,
    "MaxPool": max_pool,
    "NormalizeL2": normalize_l2,
    "ReduceL1": reduction("ReduceL1"),
    "ReduceL2": reduction("ReduceL2"),
    "ReduceLogicalAnd": logical_reduction("ReduceMin"),
    "ReduceLogicalOr": logical_reduction("ReduceMax"),
    "ReduceMax": reduction("ReduceMax"),
    "ReduceMean": reduction("ReduceMean"),
    "ReduceMin": reduction("ReduceMin"),
    "ReduceProd": reduction("ReduceProd"),
    "ReduceSum": reduction("ReduceSum"),
    "ScaledDotProductAttention": attention,
    "SoftMax": softmax("Softmax"),
    "Softmax": softmax("Softmax"),
    "TopK": top_k,
}
