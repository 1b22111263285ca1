"""Normalizations of float32 values: in float64, rounded once at the end. ONNX Runtime's own, in float32, come within a
few units in the last place.

Where an operator gives more than its result (a mean, a deviation), that is left out; what reads it is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax

from service.compiler.importers import real
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import Convert, axis_of, float32
from service.compiler.importers.real import Wide
from service.compiler.qnn.graph import shape_of

_PER_CHANNEL_SINCE = 21  # of ONNX's operator sets: before, GroupNormalization scales each group


def layer_normalization(node: Node) -> Value:
    """X, Scale, B: over all axes from the named one on."""
    float32(node, *range(node.input_count))
    wide = Wide(node.emit, node.expr(0))
    return _rows(node, wide, 1, 2, centered=True), None, None


def rms_normalization(node: Node) -> Value:
    """X, scale: without a mean. RMSNormalization, and ONNX Runtime's SimplifiedLayerNormalization."""
    float32(node, *range(node.input_count))
    wide = Wide(node.emit, node.expr(0))
    return _rows(node, wide, 1, 2, centered=False), None


def skip_layer_normalization(node: Node) -> Value:
    """input, skip, gamma, beta, bias (com.microsoft): of input + skip + bias, which is the fourth output."""
    total = _skipped(node, bias=4)
    return _rows(node, Wide(node.emit, total), 2, 3, centered=True), None, None, total


def skip_rms_normalization(node: Node) -> Value:
    """input, skip, gamma, bias (com.microsoft, SkipSimplifiedLayerNormalization)."""
    total = _skipped(node, bias=3)
    return _rows(node, Wide(node.emit, total), 2, -1, centered=False), None, None, total


def _skipped(node: Node, bias: int) -> relax.Expr:
    """The sum in float32, from the left, as ONNX Runtime adds."""
    float32(node, *(place for place in range(node.input_count) if node.has(place)))
    total = node.emit(relax.op.add(node.expr(0), node.expr(1)), "skipped")
    return node.emit(relax.op.add(total, node.expr(bias)), "biased") if node.has(bias) else total


def _rows(node: Node, wide: Wide, scale: int, bias: int, *, centered: bool) -> relax.Expr:
    """`wide.x` normalized from the named axis on, scaled and moved by two inputs."""
    rank = len(shape_of(wide.x))
    axes = list(range(axis_of(node, rank, -1), rank))
    node.require(node.attribute("stash_type", 1) == 1, "computes in another type than float32")
    # com.microsoft's are given an epsilon of 1e-12 by default, ONNX's one of 1e-5.
    epsilon = node.attribute("epsilon", 1e-12 if "Skip" in node.operator.op_type else 1e-5)
    result = (real.normalize if centered else real.rms_normalize)(wide, axes, epsilon)
    result = wide.apply(relax.op.multiply, result, wide.widened(node.expr(scale)))
    if bias >= 0 and node.has(bias):
        result = wide.apply(relax.op.add, result, wide.widened(node.expr(bias)))
    return wide.rounded(result)


def batch_normalization(node: Node) -> Value:
    """X, scale, B, mean, var, each of the last four `[C]`: of running statistics, as a model has them."""
    if node.attribute("training_mode", 0):
        node.unsupported("is in training mode; export the model after model.eval()")
    float32(node, *range(5))
    shape = _channels(node, [node.shape(place) for place in range(1, 5)])
    wide, epsilon = Wide(node.emit, node.expr(0)), node.attribute("epsilon", 1e-5)
    scale, bias, center, variance = (_row(node, wide, place, len(shape)) for place in range(1, 5))
    root = wide.apply(relax.op.sqrt, wide.apply(relax.op.add, variance, epsilon))
    factor = wide.apply(relax.op.divide, scale, root)
    scaled = wide.apply(relax.op.multiply, wide.apply(relax.op.subtract, wide.x, center), factor)
    return wide.rounded(wide.apply(relax.op.add, scaled, bias)), None, None, None, None


def instance_normalization(node: Node) -> Value:
    """input, scale, B, both `[C]`: over the pixels of each channel."""
    float32(node, 0, 1, 2)
    shape = _channels(node, [node.shape(1), node.shape(2)])
    node.require(len(shape) >= 3, f"has an input of {list(shape)}, not [N, C, …]")
    wide = Wide(node.emit, node.expr(0))
    result = real.normalize(wide, range(2, len(shape)), node.attribute("epsilon", 1e-5))
    scale, bias = (_row(node, wide, place, len(shape)) for place in (1, 2))
    return wide.rounded(wide.apply(relax.op.add, wide.apply(relax.op.multiply, result, scale), bias))


def group_normalization(node: Node) -> Value:
    """X, scale, bias: over channels and pixels of each group. Scale and bias are `[num_groups]` up to operator set 20,
    then `[C]`."""
    float32(node, 0, 1, 2)
    shape, groups = node.shape(0), node.attribute("num_groups", 0)
    node.require(len(shape) >= 3, f"has an input of {list(shape)}, not [N, C, …]")
    node.require(groups > 0 and shape[1] % groups == 0, f"makes {groups} groups of {shape[1]} channels")
    rows = shape[1] if node.state.model.opset >= _PER_CHANNEL_SINCE else groups
    node.require(node.shape(1) == node.shape(2) == (rows,), f"has parameters that are not {rows} numbers")
    per_group, pixels = shape[1] // groups, math.prod(shape[2:])
    split = node.emit(relax.op.reshape(node.expr(0), (shape[0], groups, per_group, pixels)), "groups")
    wide = Wide(node.emit, split)
    result = real.normalize(wide, (2, 3), node.attribute("epsilon", 1e-5))
    part = (1, groups, per_group if rows == shape[1] else 1, 1)
    scale, bias = (wide.widened(node.emit(relax.op.reshape(node.expr(place), part), "row")) for place in (1, 2))
    moved = wide.rounded(wide.apply(relax.op.add, wide.apply(relax.op.multiply, result, scale), bias))
    return node.emit(relax.op.reshape(moved, shape))


def mean_variance_normalization(node: Node) -> Value:
    """(x - mean) / (deviation + 1e-9) along some axes (the function's body in the operator's definition)."""
    float32(node)
    rank, axes = len(node.shape(0)), node.attribute("axes", (0, 2, 3))
    node.require(all(-rank <= axis < rank for axis in axes), f"names the axes {list(axes)[:8]} of {rank}")
    wide, places = Wide(node.emit, node.expr(0)), sorted({axis % rank for axis in axes})
    moved = wide.apply(relax.op.subtract, wide.x, real.mean(wide, places, keepdims=True))
    variance = real.mean(wide, places, keepdims=True, of=wide.apply(relax.op.multiply, moved, moved))
    deviation = wide.apply(relax.op.add, wide.apply(relax.op.sqrt, variance), 1e-9)
    return wide.rounded(wide.apply(relax.op.divide, moved, deviation))


def lp_normalization(node: Node) -> Value:
    """x over its norm along one axis, the sum of magnitudes (p = 1) or the root of squares (p = 2); 0 where that is."""
    float32(node)
    order = node.attribute("p", 2)
    if order not in (1, 2):
        node.unsupported(f"has p of {order}; 1 and 2 can be compiled")
    wide, axis = Wide(node.emit, node.expr(0)), axis_of(node, len(node.shape(0)), -1)
    terms = wide.apply(relax.op.abs, wide.x) if order == 1 else wide.apply(relax.op.multiply, wide.x, wide.x)
    norm = wide(relax.op.sum(terms, axis=[axis], keepdims=True))
    norm = norm if order == 1 else wide.apply(relax.op.sqrt, norm)
    empty = wide.apply(relax.op.equal, norm, 0.0)
    return wide.rounded(wide.apply(relax.op.where, empty, 0.0, wide.apply(relax.op.divide, wide.x, norm)))


def _channels(node: Node, rows: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The input's shape, whose second axis each of `rows` has."""
    shape = node.shape(0)
    node.require(len(shape) >= 2, f"has an input of {list(shape)}, not [N, C, …]")
    node.require(all(row == (shape[1],) for row in rows), f"has parameters that are not of {shape[1]} channels")
    return shape


def _row(node: Node, wide: Wide, place: int, rank: int) -> relax.Expr:
    """An input `[C]` in float64, along the second axis of `rank`."""
    known, shape = node.known(place), (-1, *[1] * (rank - 2))
    if known is not None:
        return node.literal(known.astype(np.float64).reshape(shape))
    count = node.shape(place)[0]
    return wide.widened(node.emit(relax.op.reshape(node.expr(place), (count, *shape[1:])), "row"))


NORMALIZING: dict[str, tuple[Convert, tuple[int, int]]] = {
    "BatchNormalization": (batch_normalization, (5, 5)),
    "GroupNormalization": (group_normalization, (3, 3)),
    "InstanceNormalization": (instance_normalization, (3, 3)),
    "LayerNormalization": (layer_normalization, (2, 3)),
    "LpNormalization": (lp_normalization, (1, 1)),
    "MeanVarianceNormalization": (mean_variance_normalization, (1, 1)),
    "RMSNormalization": (rms_normalization, (2, 2)),
    "SimplifiedLayerNormalization": (rms_normalization, (2, 2)),  # ONNX Runtime's, under ONNX's own domain
    "com.microsoft.SkipLayerNormalization": (skip_layer_normalization, (3, 5)),
    "com.microsoft.SkipSimplifiedLayerNormalization": (skip_rms_normalization, (3, 4)),
}
