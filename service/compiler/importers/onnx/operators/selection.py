"""Operators that select, repeat and pad elements. They work on stored values, real values, and values that are known
while importing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from tvm import relax

from service.compiler.importers.builder import movement
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.movement import move_elements


def gather(node: Node) -> Value:
    """Inputs: data, indices. Reads parts of the data along one axis. Negative indices count from the end. In ONNX,
    indices beyond the ends are an error; here they are clamped to the ends.
    """
    shape = node.shape(0)
    axis, indices, data = node.axis(node.attribute("axis", 0), len(shape)), node.known_value(1), node.known_value(0)
    if indices is not None:
        size = shape[axis]
        node.require(indices.dtype.kind == "i", f"has indices of {indices.dtype}, not integers")
        node.require_supported(
            bool(((indices >= -size) & (indices < size)).all()), f"has indices beyond its {size} elements"
        )
        if data is not None and indices.size * data.size <= 1 << 16:
            return node.folded(np.take(data, indices, axis))
        wanted = node.literal((indices % size).astype(np.int64))
    else:
        node.require(node.dtype(1) in ("int32", "int64"), f"has indices of {node.dtype(1)}, not int32 or int64")
        size = node.literal(np.array(shape[axis], node.dtype(1)))
        zero = node.literal(np.array(0, node.dtype(1)))
        low = node.emit(relax.op.less(node.expr(1), zero), "negative")
        moved = node.emit(relax.op.add(node.expr(1), size), "from_end")
        wanted = node.emit(relax.op.where(low, moved, node.expr(1)), "indices")
    return node.with_input_type(node.emit(relax.op.take(node.expr(0), wanted, axis, mode="clip")))


def slice_(node: Node) -> Value:
    """Inputs: data, starts, ends, axes, steps."""
    shape = node.shape(0)
    starts, ends = node.integers(1), node.integers(2)
    axes = node.integers(3) if node.has(3) else tuple(range(len(starts)))
    steps = node.integers(4) if node.has(4) else (1,) * len(starts)
    node.require(
        len(starts) == len(ends) == len(axes) == len(steps), "has starts, ends, axes and steps of different lengths"
    )
    node.require(
        0 not in steps and all(-len(shape) <= axis < len(shape) for axis in axes),
        f"has invalid axes {list(axes)[:8]} or a step of 0",
    )
    x = node.operand()
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = shape[axis]
        before_first = step < 0 and end < -size
        positions = range(size)[slice(start, None if before_first else end, step)]
        x = _part(node, x, axis % len(shape), positions)
    return x if isinstance(x, np.ndarray) else node.with_input_type(node.emit(x))


def _part(node: Node, x: Value, axis: int, positions: range) -> Value:
    """Returns `x` at some positions of one axis. A list that is known while importing may become empty."""
    if isinstance(x, np.ndarray) and not positions:
        return np.take(x, positions, axis)
    return x if positions == range(node.extents(x)[axis]) else movement.cut(node, x, axis, positions)


def split(node: Node) -> tuple[Value, ...]:
    """Splits the data into adjacent parts along one axis. Up to operator set 12, the lengths of the parts are an
    attribute; later, they are an input. By default, all parts have the same length, except that the last part may be
    shorter.
    """
    shape, count = node.shape(0), len(node.operator.outputs)
    axis = node.axis(node.attribute("axis", 0), len(shape))
    sizes = node.integers(1) if node.has(1) else node.attribute("split", ())
    if not sizes:
        each = -(-shape[axis] // count)
        sizes = (*(each,) * (count - 1), shape[axis] - each * (count - 1))
    movement.split_sizes(node, shape[axis], sizes, count)
    ranges = [range(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]
    x, quantized = node.operand(), node.state.types.get(node.name(0))
    if isinstance(x, np.ndarray):
        return tuple(_part(node, x, axis, positions) for positions in ranges)
    if quantized is not None and quantized.is_per_tensor:
        node.state.types |= dict.fromkeys(filter(None, node.operator.outputs), quantized)
    return tuple(node.emit(_part(node, x, axis, positions), f"part{n}") for n, positions in enumerate(ranges))


def pad(node: Node) -> Value:
    """Inputs: data, pads, constant_value, axes. Up to operator set 10, pads and constant_value are attributes."""
    rank = len(node.shape(0))
    pads = node.integers(1) if node.has(1) else node.attribute("pads", ())
    named = node.integers(3) if node.has(3) else tuple(range(rank))
    node.require(len(pads) == 2 * len(named), f"has {len(pads)} pads for {len(named)} axes")
    sides = [(0, 0)] * rank
    for axis, before, after in zip(node.axes(named, rank), pads[: len(named)], pads[len(named) :], strict=True):
        sides[axis] = (before, after)
    mode = node.attribute("mode", "constant")
    if mode == "constant":
        value = node.number(2) if node.has(2) else float(node.attribute("value", 0.0))
        grown = [(max(0, before), max(0, after)) for before, after in sides]
        movement.check_pads(node, [size for side in grown for size in side])
        return node.with_input_type(movement.pad(node, _cropped(node, sides), grown, value))
    movement.check_pads(node, pads)
    if mode not in ("edge", "reflect", "wrap"):
        node.unsupported(f"has the mode {mode}, which cannot be compiled")
    return node.with_input_type(node.emit(movement.pad_with_elements(node, node.expr(0), sides, mode)))


def _cropped(node: Node, sides: Sequence[tuple[int, int]]) -> relax.Expr:
    """Returns the first input without the elements that negative pads remove."""
    x = node.expr(0)
    for axis, (before, after) in enumerate(sides):
        start, end = max(0, -before), node.extents(x)[axis] - max(0, -after)
        node.require(start <= end, f"removes more elements of axis {axis} than there are")
        if (start, end) != (0, node.extents(x)[axis]):
            x = movement.cut(node, x, axis, range(start, end), "cropped")
    return x


def expand(node: Node) -> Value:
    """Inputs: data, shape. Broadcasts the data and the shape to one another."""
    wanted = node.integers(1)
    try:
        shape = np.broadcast_shapes(node.shape(0), wanted)
    except ValueError:
        node.malformed(f"cannot broadcast {list(node.shape(0))} to {list(wanted)[:8]}")
    return move_elements(node, movement.broadcast, shape)


def tile(node: Node) -> Value:
    """Inputs: data, repeats."""
    repeats = node.integers(1)
    node.require(len(repeats) == len(node.shape(0)), f"has invalid repeats {list(repeats)[:8]}")
    return move_elements(node, movement.tile, repeats)


def depth_to_space(node: Node) -> Value:
    """Converts `[N, C * b * b, H, W]` to `[N, C, H * b, W * b]`. Within the channels, the two block axes come first
    (DCR) or last (CRD).
    """
    (n, channels, height, width), block = _image(node)
    node.require(
        channels % (block * block) == 0, f"cannot divide {channels} channels into blocks of {block} by {block}"
    )
    mode, rest = node.attribute("mode", "DCR"), channels // (block * block)
    node.require(mode in ("DCR", "CRD"), f"has the unknown mode {mode}")
    split_, order = ([n, block, block, rest], (0, 3, 4, 1, 5, 2))
    if mode == "CRD":
        split_, order = ([n, rest, block, block], (0, 1, 4, 2, 5, 3))
    shape = (n, rest, height * block, width * block)
    return move_elements(node, movement.rearrange, [*split_, height, width], order, shape)


def space_to_depth(node: Node) -> Value:
    """Converts `[N, C, H * b, W * b]` to `[N, C * b * b, H, W]`."""
    (n, channels, height, width), block = _image(node)
    node.require(
        height % block == 0 and width % block == 0, f"cannot divide {height} by {width} pixels into blocks of {block}"
    )
    rows, columns = height // block, width // block
    cut = [n, channels, rows, block, columns, block]
    shape = (n, channels * block * block, rows, columns)
    return move_elements(node, movement.rearrange, cut, (0, 3, 5, 1, 2, 4), shape)


def _image(node: Node) -> tuple[tuple[int, ...], int]:
    shape, block = node.shape(0), node.attribute("blocksize", 0)
    node.require(
        len(shape) == 4 and block > 0, f"has an input {list(shape)} and the blocksize {block}, which do not fit"
    )
    return shape, block
