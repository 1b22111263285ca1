"""ADD_N, CUMSUM, L2_POOL_2D and LOCAL_RESPONSE_NORMALIZATION."""

from __future__ import annotations

import math
from typing import cast

import numpy as np
from tvm import relax

from service.compiler.importers.builder import movement, pooling
from service.compiler.importers.real import Real
from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.elementwise import clamped, require_one_dtype
from service.compiler.importers.tflite.operators.real import real_windows
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of

_MOST_RADIUS = 1 << 9


def add_n(node: Node) -> relax.Expr:
    """Converts ADD_N, which adds tensors of one shape from left to right (reference_ops::AddN)."""
    require_one_dtype(node)
    shapes = {node.input(index).shape for index in range(node.input_count)}
    node.require(len(shapes) == 1, "adds tensors of different shapes")
    total, *others = node.exprs()
    for other in others:
        total = node.emit(relax.op.add(total, other), "sum")
    return total if others else node.emit(relax.op.reshape(total, shape_of(total)))


def cumulative_sum(node: Node) -> relax.Expr:
    """Converts CUMSUM: the sum of all elements up to each one along an axis. With `exclusive`, the element itself is
    not included. With `reverse`, sums start at the end (`CumsumImpl` in optimized/optimized_ops.h).
    """
    shape = node.input(0).shape
    node.require(bool(shape), "has a scalar input", node.input(0))
    axis = node.axis(node.scalar(1), len(shape))
    size, reverse = shape[axis], bool(node.option("reverse"))
    x = _reversed(node, node.expr(0), axis) if reverse else node.expr(0)
    sums = node.emit(ops.running_sum(x, axis=axis), "sums")
    if node.option("exclusive"):
        sides = [(1 if index == axis else 0, 0) for index in range(len(shape))]
        moved = movement.pad(node, sums, sides, 0, "moved")
        sums = node.emit(relax.op.strided_slice(moved, [axis], [0], [size], [1]), "before")
    return _reversed(node, sums, axis) if reverse else sums


def _reversed(node: Node, x: relax.Expr, axis: int) -> relax.Expr:
    size = shape_of(x)[axis]
    turned: relax.Expr = movement.take(node, x, axis, size, lambda: np.arange(size)[::-1], "turned")
    return turned


def l2_pool2d(node: Node) -> relax.Expr:
    """Converts L2_POOL_2D: the square root of the mean of the squares in each window (`L2Pool` in
    reference/pooling.h).
    """
    x = node.emit(relax.op.multiply(node.expr(0), node.expr(0)), "squares")
    mean = node.emit(pooling.average(Real(node.emit, x), real_windows(node)), "mean")
    return clamped(node, node.emit(relax.op.sqrt(mean)), node.activation())


def local_response_normalization(node: Node) -> relax.Expr:
    """Converts LOCAL_RESPONSE_NORMALIZATION: x * (bias + alpha * s)**-beta, where s is the sum of the squares of the
    channels within a radius. As in the reference kernel (`LocalResponseNormalization` in reference_ops.h), the last
    channel within the radius does not count. LiteRT's optimized kernel counts it.
    """
    shape, radius = node.image(), node.int_option("radius", least=0)
    if radius > _MOST_RADIUS:
        node.unsupported(f"has a radius of {radius}; at most {_MOST_RADIUS} can be compiled")
    bias, alpha, beta = (float(cast(float, node.option(name))) for name in ("bias", "alpha", "beta"))
    node.require(all(map(math.isfinite, (bias, alpha, beta))), "has a bias, alpha or beta that is not finite")
    real = Real(node.emit, node.expr(0))
    radius = min(radius, shape[3])
    squares = real.apply(relax.op.multiply, real.x, real.x)
    padded = real(relax.op.nn.pad(squares, [0, 0, 0, 0, 0, 0, radius, max(0, radius - 1)]))
    parts = pooling.shifted(real, padded, [3], [2 * radius], [1]) if radius else [real.apply(_zeros, real.x)]
    total = parts[0] if len(parts) == 1 else real(pooling.combined(real, parts, relax.op.add))
    scale = real.apply(relax.op.add, real.apply(relax.op.multiply, total, alpha), bias)
    wide = real(relax.op.astype(scale, "float64"))
    factor = real(relax.op.power(wide, relax.const(-beta, "float64")))
    return node.emit(relax.op.multiply(real.x, real(relax.op.astype(factor, "float32"))))


def _zeros(x: relax.Expr) -> relax.Call:
    return relax.op.multiply(x, relax.const(np.array(0, np.float32)))
