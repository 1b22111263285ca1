"""Operators whose result depends on shapes or constants only: RANGE, FILL, ZEROS_LIKE, RANK and BROADCAST_ARGS."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from service.compiler.importers.builder import movement
from service.compiler.importers.tflite.node import Node

_MOST_DIMENSIONS = 8


def range_(node: Node) -> relax.Expr:
    """Converts RANGE, whose bounds must be constant. The result contains start + i * delta (`GetSize` and `EvalImpl` in
    tflite/kernels/range.cc).
    """
    start, limit, delta = (node.data(position).reshape(-1) for position in range(3))
    node.require(len(start) == len(limit) == len(delta) == 1, "has a bound that is not a scalar")
    first, last, step = start[0].item(), limit[0].item(), delta[0].item()
    ordered = step != 0 and math.isfinite(first + last + step) and (last - first) / step >= 0
    node.require(ordered, f"cannot count from {first} to {last} by {step}")
    count = math.ceil(abs((last - first) / step))
    node.expect_shape((count,))
    node.reserve(count * np.dtype(node.output.dtype).itemsize)
    dtype = np.dtype(node.output.dtype)
    values = np.full(count, start[0], dtype)
    if count:  # each value is the one before plus the step, rounded to the type
        values[1:] = delta[0]
        values = np.cumsum(values, dtype=dtype)
    return relax.const(values, dtype.name)


def fill(node: Node) -> relax.Expr:
    """Converts FILL, which repeats a scalar to a constant shape."""
    shape = tuple(node.integers(0).reshape(-1).tolist())
    node.require(len(shape) <= _MOST_DIMENSIONS and min(shape, default=0) >= 0, f"cannot fill the shape {list(shape)}")
    node.require(math.prod(node.input(1).shape) == 1, "fills with a tensor that is not a scalar", node.input(1))
    node.expect_shape(shape)
    value = node.emit(relax.op.reshape(node.expr(1), [1] * len(shape)), "value")
    return node.emit(relax.op.broadcast_to(value, shape)) if shape else value


def zeros_like(node: Node) -> relax.Expr:
    shape, dtype = node.input(0).shape, node.output.dtype
    node.expect_shape(shape)
    return node.emit(relax.op.broadcast_to(relax.const(np.array(0, dtype), dtype), shape))


def rank(node: Node) -> relax.Expr:
    dtype = node.output.dtype
    return relax.const(np.array(len(node.input(0).shape), dtype), dtype)


def broadcast_args(node: Node) -> relax.Expr:
    """Returns the shape to which two constant shapes broadcast."""
    shapes = [node.integers(position).reshape(-1).tolist() for position in range(2)]
    length = max(map(len, shapes))
    sizes = list(zip(*([1] * (length - len(shape)) + shape for shape in shapes), strict=True))
    fits = all(one == other or 1 in (one, other) for one, other in sizes)
    node.require(fits, f"has shapes {shapes[0]} and {shapes[1]}, which do not broadcast")
    result = [other if one == 1 else one for one, other in sizes]
    return relax.const(np.array(result, node.output.dtype), node.output.dtype)


def broadcast_to(node: Node) -> relax.Expr:
    target = tuple(node.integers(1).reshape(-1).tolist())
    node.expect_shape(target)
    return movement.broadcast(node, node.expr(0), target)
