"""Operators that make tensors of a given shape: identity matrices, and images of a given size."""

from __future__ import annotations

import math

import numpy as np

from service.compiler.importers.builder import movement
from service.compiler.importers.onnx.file.schema import DTYPES
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import Convert

_LARGEST = 1 << 22  # elements of an identity matrix
_DTYPES = ("bool", "float32", "float64", "int32", "int64", "int8", "uint8")


def eye_like(node: Node) -> Value:
    """Inputs: a matrix of which only shape and type count. Returns ones on the k-th diagonal, and zeros elsewhere."""
    shape = node.shape(0)
    node.require(len(shape) == 2, f"has an input {list(shape)}, which is not a matrix")
    node.require_supported(math.prod(shape) <= _LARGEST, f"computes a matrix {list(shape)}, which is too large")
    number = node.attribute("dtype", 0)
    dtype = DTYPES.get(number, f"type {number}") if number else node.dtype(0)
    node.require_supported(dtype in _DTYPES, f"computes a matrix of {dtype}, which cannot be compiled")
    # a longer diagonal offset than the matrix is wide leaves zeros, whatever the offset
    offset = max(-shape[0], min(shape[1], node.attribute("k", 0)))
    return node.literal(np.eye(shape[0], shape[1], k=offset, dtype=np.dtype(dtype)))


def center_crop_pad(node: Node) -> Value:
    """Inputs: data, the sizes of some axes. Along each of them, removes elements on both sides, or adds zeros.

    Of an odd number of elements, the larger half is at the end.
    """
    shape, sizes = node.shape(0), node.integers(1)
    named = node.attribute("axes", tuple(range(len(shape))))
    axes = node.axes(named, len(shape))
    node.require(len(axes) == len(sizes) and min(sizes, default=1) >= 1, f"has the invalid sizes {list(sizes)[:8]}")
    x: Value = node.expr(0)
    sides = [(0, 0)] * len(shape)
    for axis, size in zip(axes, sizes, strict=True):
        excess = shape[axis] - size
        if excess > 0:
            first = excess // 2
            x = movement.cut(node, x, axis, range(first, first + size))
        elif excess:
            sides[axis] = (-excess // 2, -excess - -excess // 2)
    movement.check_pads(node, [each for pair in sides for each in pair])
    if any(map(any, sides)):
        x = movement.pad(node, x, sides, 0.0)
    return node.emit(x)


FILLING: dict[str, tuple[Convert, tuple[int, int]]] = {
    "CenterCropPad": (center_crop_pad, (2, 2)),
    "EyeLike": (eye_like, (1, 1)),
}
