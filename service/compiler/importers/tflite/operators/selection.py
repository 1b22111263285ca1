"""Operators that select elements (SLICE, STRIDED_SLICE, REVERSE_V2) or repeat them (TILE, RESIZE_NEAREST_NEIGHBOR)."""

from __future__ import annotations

from functools import partial

import numpy as np
from tvm import relax

from service.compiler.importers.builder import movement
from service.compiler.importers.tflite.model import Tensor
from service.compiler.importers.tflite.node import Node
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of
from service.core.models.arrays import Array

_BYTES = ("int8", "uint8")


def slice_(node: Node) -> relax.Expr:
    """Converts SLICE. A size of -1 means all remaining elements (`CalculateOutputShapeVector` in
    tflite/kernels/slice.cc).
    """
    shape = node.input(0).shape
    begin, size = (node.integers(position).reshape(-1).tolist() for position in (1, 2))
    node.require(len(begin) == len(size) == len(shape), f"cannot slice shape {list(shape)} at {begin} by {size}")
    end = [total if count == -1 else first + count for first, count, total in zip(begin, size, shape, strict=True)]
    node.require(
        all(0 <= first <= last <= total for first, last, total in zip(begin, end, shape, strict=True)),
        f"cannot slice shape {list(shape)} at {begin} by {size}",
    )
    if begin and any(first == last for first, last in zip(begin, end, strict=True)):
        node.unsupported(f"selects an empty range of shape {list(shape)}: {size} at {begin}")
    return sliced(node, node.expr(0), begin, end)


def sliced(
    node: Node, x: relax.Expr, begin: list[int], end: list[int], part: str = "", tensor: Tensor | None = None
) -> relax.Expr:
    """Returns `x[begin:end]` along every axis. The emitted slice contains only those axes that become shorter."""
    shape = shape_of(x)
    axes = [
        axis for axis, (first, last) in enumerate(zip(begin, end, strict=True)) if (first, last) != (0, shape[axis])
    ]
    if not axes:
        return node.emit(relax.op.reshape(x, shape), part, tensor)
    bounds = {"begin": [begin[axis] for axis in axes], "end": [end[axis] for axis in axes]}
    return node.emit(relax.op.strided_slice(x, axes=axes, **bounds), part, tensor)


def strided_slice(node: Node) -> relax.Expr:
    """Converts STRIDED_SLICE, as `StridedSliceContext` in tflite/kernels/strided_slice.cc does. Masks select open ends,
    an ellipsis, new axes and removed axes.
    """
    if node.option("offset"):
        node.unsupported("gives its ends as offsets, which cannot be compiled")
    x, shape = node.expr(0), node.input(0).shape
    axis = 0
    final: list[int] = []
    for dim, keep in _dimensions(node, len(shape)):
        if dim is None:
            final.append(1)
            continue
        positions = range(shape[axis])[dim]
        if positions != range(shape[axis]):
            x = movement.cut(node, x, axis, positions, f"axis_{axis}")
        if keep:
            final.append(len(positions))
        axis += 1
    return node.emit(relax.op.reshape(x, final))


def _dimensions(node: Node, rank: int) -> list[tuple[slice | None, bool]]:
    """Returns the slice of each axis (None for a new axis), and true if the axis stays in the result."""
    begin, end, strides = (node.integers(position).reshape(-1).tolist() for position in (1, 2, 3))
    node.require(
        len(begin) == len(end) == len(strides), f"cannot slice from {begin} to {end} by {strides}: their lengths differ"
    )
    node.require(0 not in strides, "has a stride of 0", node.input(3))
    masks = {name: node.int_option(f"{name}_mask") for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    bits = {name: [bool(mask >> position & 1) for position in range(len(begin))] for name, mask in masks.items()}
    node.require(sum(bits["ellipsis"]) <= 1, "has more than one ellipsis")
    named = sum(not (a or b) for a, b in zip(bits["ellipsis"], bits["new_axis"], strict=True))
    node.require(named <= rank, f"slices {named} axes, but its input has {rank}")
    everything = (slice(None), True)
    result: list[tuple[slice | None, bool]] = []
    for position, (first, last, step) in enumerate(zip(begin, end, strides, strict=True)):
        if bits["ellipsis"][position]:
            result += [everything] * (rank - named)
        elif bits["new_axis"][position]:
            result.append((None, True))
        elif bits["shrink_axis"][position]:
            place_taken = 0 if bits["begin"][position] else first
            result.append((slice(place_taken, place_taken + 1 or None), False))
        else:
            ends = (None if bits["begin"][position] else first, None if bits["end"][position] else last)
            result.append((slice(*ends, step), True))
    if not any(bits["ellipsis"]):
        result += [everything] * (rank - named)
    return result


def reverse(node: Node) -> relax.Expr:
    shape, x = node.input(0).shape, node.expr(0)
    for named in node.integers(1).reshape(-1).tolist():
        axis = node.axis(named, len(shape))
        x = movement.take(node, x, axis, shape[axis], partial(_reversed, shape[axis]), f"axis_{axis}")
    return x


def _reversed(size: int) -> Array:
    return np.arange(size)[::-1]


def tile(node: Node) -> relax.Expr:
    shape, times = node.input(0).shape, node.integers(1).reshape(-1).tolist()
    node.require(len(times) == len(shape), f"cannot repeat shape {list(shape)} {times} times")
    node.expect_shape(tuple(size * count for size, count in zip(shape, times, strict=True)))
    return movement.tile(node, node.expr(0), times)


def resize_nearest(node: Node) -> relax.Expr:
    """Resizes `[N, H, W, C]` (`GetNearestNeighbor` in reference/resize_nearest_neighbor.h)."""
    tensor, size = node.input(0), node.integers(1).reshape(-1).tolist()
    shape = tensor.shape
    node.require(len(shape) == 4 and len(size) == 2 and min(size) >= 1, f"cannot resize shape {list(shape)} to {size}")
    node.expect_shape((shape[0], *size, shape[3]))
    corners, centers = bool(node.option("align_corners")), bool(node.option("half_pixel_centers"))
    positions = [
        partial(nearest_places, old, new, align_corners=corners, half_pixel_centers=centers)
        for old, new in zip(shape[1:3], size, strict=True)
    ]
    if tensor.quantization is not None and not tensor.quantization.per_axis and tensor.dtype in _BYTES:
        node.reserve(2 * sum(size) * np.dtype(np.int64).itemsize)
        rows, columns = (position().tolist() for position in positions)
        return node.emit(ops.take_pixels(node.expr(0), node.in_type(0), rows=rows, columns=columns))
    x = node.expr(0)
    for axis, (new, position) in enumerate(zip(size, positions, strict=True), start=1):
        x = movement.take(node, x, axis, new, position, f"axis_{axis}")
    return x


def nearest_places(old: int, new: int, *, align_corners: bool, half_pixel_centers: bool) -> Array:
    """Returns, for each position in `new`, the nearest position in `old`. Computes in float32."""
    span = (old - 1, new - 1) if align_corners and new > 1 else (old, new)
    scale = np.float32(span[0]) / np.float32(span[1])
    position = (np.arange(new, dtype=np.float32) + np.float32(0.5 if half_pixel_centers else 0)) * scale
    whole = np.floor(position)
    if align_corners:
        whole += position - whole >= 0.5
    return np.asarray(np.clip(whole.astype(np.int64), 0, old - 1))
