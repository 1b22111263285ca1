"""Operators that move, select or repeat elements without changing them.

The operand `x` is an expression, or whatever else the importer's `Node.move` accepts. Axes are those of the file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from tvm import relax

from service.compiler.importers.builder.node import Node
from service.compiler.qnn.graph import shape_of
from service.core.models.arrays import Array

_WIDEST = 1 << 16  # limit of the padding on one side of an axis
Mode = Literal["edge", "reflect", "symmetric", "wrap"]  # NumPy's names of the modes that pad with elements
Pairs = Sequence[Sequence[int]]


def reshape(node: Node, x: Any, target: Sequence[int], part: str = "") -> Any:
    """Changes the shape. One size may be -1, which means all remaining elements."""
    shape = inferred(node, node.extents(x), target)
    return node.move(x, lambda x: _reshape(x, shape), part)


def _reshape(x: relax.Expr, shape: Sequence[int]) -> relax.Expr:
    """Changes the shape. TVM would take a size of 0 for the size that `x` has there, so a tensor without elements
    becomes a constant.
    """
    if 0 in shape:
        dtype = str(x.ty.dtype)
        return relax.const(np.zeros(shape, dtype), dtype)
    return relax.op.reshape(x, list(shape))


def inferred(node: Node, shape: Sequence[int], target: Sequence[int]) -> list[int]:
    """Returns `target` with the size that -1 stands for."""
    total, known = math.prod(shape), math.prod(size for size in target if size != -1)
    is_open = -1 in target
    fits = known > 0 and total % known == 0 if is_open else known == total
    node.require(
        fits and list(target).count(-1) <= 1 and min(target, default=0) >= -1,
        f"cannot reshape {list(shape)} to {list(target)}",
    )
    return [total // known if size == -1 else size for size in target]


def squeeze(node: Node, x: Any, named: Collection[int]) -> Any:
    """Removes axes of length 1: those that are named, or all of them if none is."""
    shape = node.extents(x)
    dropped = set(node.axes(named, len(shape))) or {axis for axis, size in enumerate(shape) if size == 1}
    node.require(
        all(shape[axis] == 1 for axis in dropped), f"cannot remove the axes {sorted(dropped)} of shape {list(shape)}"
    )
    return reshape(node, x, [size for axis, size in enumerate(shape) if axis not in dropped])


def unsqueeze(node: Node, x: Any, named: Sequence[int], part: str = "") -> Any:
    """Adds axes of length 1, which are numbered as in the result."""
    shape = list(node.extents(x))
    axes = sorted(node.axes(named, len(shape) + len(named)))
    node.require(len(set(axes)) == len(axes), "names an axis twice")
    for axis in axes:
        shape.insert(axis, 1)
    return reshape(node, x, shape, part)


def transpose(node: Node, x: Any, named: Sequence[int]) -> Any:
    rank = len(node.extents(x))
    order = node.axes(named, rank)
    node.require(sorted(order) == list(range(rank)), f"cannot permute {rank} axes by {list(named)[:8]}")
    return node.move(x, lambda x: relax.op.permute_dims(x, order)) if order else x


def rearrange(
    node: Node, x: Any, apart: Sequence[int], order: Sequence[int], shape: Sequence[int], part: str = ""
) -> Any:
    """Reshapes to `apart`, permutes the axes by `order`, and reshapes to `shape`."""
    cells = node.move(x, lambda x: _reshape(x, apart), "cells")
    moved = node.move(cells, lambda x: relax.op.permute_dims(x, list(order)), "moved")
    return node.move(moved, lambda x: _reshape(x, shape), part)


def cut(node: Node, x: Any, axis: int, positions: range, part: str = "part") -> Any:
    """Selects positions of one axis."""
    if len(positions) == 0:
        shown = list(node.extents(x))
        node.require_supported(node.folds_empty, f"selects an empty range on axis {axis} of shape {shown}")
        return node.move(x, lambda x: relax.op.strided_slice(x, [axis], [0], [0], [1]), part)
    if positions.step < 0:
        return take(node, x, axis, len(positions), lambda: np.array(positions), part)
    bounds = [positions.start], [positions[-1] + 1], [positions.step]
    return node.move(x, lambda x: relax.op.strided_slice(x, [axis], *bounds), part)


def take(node: Node, x: Any, axis: int, count: int, positions: Callable[[], Array], part: str = "") -> Any:
    """Selects the `count` elements at `positions` of an axis, in that order."""
    node.reserve(count * np.dtype(np.int64).itemsize)
    indices = relax.const(np.ascontiguousarray(positions(), node.index_dtype), node.index_dtype)
    return node.move(x, lambda x: relax.op.take(x, indices, axis, mode="clip"), part)


def pad(node: Node, x: Any, sides: Pairs, fill: float, part: str = "") -> Any:
    """Adds `fill` before and after each axis."""
    if not sides:  # a scalar has no axis
        return x
    widths = [int(width) for pair in sides for width in pair]
    return node.move(x, lambda x: relax.op.nn.pad(x, widths, pad_value=fill), part)


def check_pads(node: Node, pads: Collection[int]) -> None:
    node.require_supported(
        min(pads, default=0) >= 0, "has negative pads, which cannot be compiled", hint="slice instead"
    )
    widest = max(pads, default=0)
    node.require_supported(widest <= _WIDEST, f"pads by {widest} elements; at most {_WIDEST} can be compiled")


def pad_with_elements(node: Node, x: Any, sides: Pairs, mode: Mode) -> Any:
    """Adds elements of the operand before and after each axis."""
    shape = node.extents(x)
    for axis, (before, after) in enumerate(sides):
        size = shape[axis]
        most = {"reflect": size - 1, "symmetric": size}.get(mode, max(before, after))
        node.require_supported(
            max(before, after) <= most and (size > 0 or not (before or after)),
            f"pads axis {axis} with {max(before, after)} of its elements, but has only {size} there",
        )
        if before or after:

            def positions(size: int = size, widths: tuple[int, int] = (before, after)) -> Array:
                return np.pad(np.arange(size), widths, mode)

            x = take(node, x, axis, size + before + after, positions, "padded")
    return x


def tile(node: Node, x: Any, times: Sequence[int]) -> Any:
    """Repeats the operand along each axis. Additional numbers in front add axes."""
    shape = node.extents(x)
    what = f"cannot repeat shape {list(shape)} {list(times)[:8]} times"
    node.require(len(times) >= len(shape) and min(times, default=1) >= 0, what)
    node.require_supported(0 not in times, f"{what}, which leaves no elements")
    return node.move(x, lambda x: relax.op.tile(x, list(times))) if times else x


def broadcast(node: Node, x: Any, target: Sequence[int]) -> Any:
    """Repeats axes of length 1, and adds axes in front, so that the result has the shape `target`."""
    shape = node.extents(x)
    padded = (1,) * (len(target) - len(shape)) + tuple(shape)
    fits = len(padded) == len(target) and all(a in (1, b) and b >= 1 for a, b in zip(padded, target, strict=True))
    node.require(fits, f"cannot broadcast shape {list(shape)} to {list(target)[:8]}")
    return node.move(x, lambda x: relax.op.broadcast_to(x, list(target)))


def joined_axis(node: Node, shapes: Sequence[Sequence[int]], named: int) -> int:
    """Returns the axis along which tensors of `shapes` are joined. Along all others, they must be equal."""
    axis = node.axis(named, len(shapes[0]))
    rests = [(*shape[:axis], None, *shape[axis + 1 :]) for shape in shapes]
    fits = len({len(shape) for shape in shapes}) == 1 and all(a == b for a, b in pairwise(rests))
    node.require(fits, f"cannot join shapes {[list(each) for each in shapes[:8]]} along axis {axis}")
    return axis


def stack(node: Node, parts: Sequence[relax.Expr], named: int) -> relax.Expr:
    """Joins tensors along a new axis."""
    shapes = sorted({shape_of(part) for part in parts})
    node.require(len(shapes) == 1, f"joins tensors of the different shapes {[list(each) for each in shapes[:8]]}")
    axis = node.axis(named, len(shapes[0]) + 1)
    cells = [unsqueeze(node, part, [axis], f"part_{index}") for index, part in enumerate(parts)]
    return node.emit(relax.op.concat(cells, axis))


def split_sizes(node: Node, length: int, sizes: Sequence[int], count: int) -> Sequence[int]:
    """Checks the sizes of the `count` parts into which an axis of `length` is split."""
    fits = len(sizes) == count and min(sizes, default=0) >= 0 and sum(sizes) == length
    node.require(fits, f"cannot split {length} elements into parts of {list(sizes)[:8]} for {count} outputs")
    return sizes
