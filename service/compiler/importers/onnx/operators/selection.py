"""Operators that select, repeat and pad elements. They work on stored values, real values, and values that are known
while importing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import axis_of
from service.compiler.qnn.graph import shape_of
from service.core.models.arrays import Array

_WIDEST = 1 << 16  # elements of padding


def gather(node: Node) -> Value:
    """Inputs: data, indices. Reads parts of the data along one axis. Negative indices count from the end. In ONNX,
    indices beyond the ends are an error; here they are clamped to the ends.
    """
    shape = node.shape(0)
    axis, indices, data = axis_of(node, len(shape), 0), node.known_value(1), node.known_value(0)
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
    positions = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = shape[axis]
        before_first = step < 0 and end < -size
        positions[axis % len(shape)] = range(size)[slice(start, None if before_first else end, step)]
    known = node.known_value(0)
    if known is not None:
        return node.folded(_of_known(known, positions))
    x = node.expr(0)
    for axis, position in positions.items():
        x = part(node, x, axis, position)
    return node.with_input_type(node.emit(x))


def _of_known(data: Array, positions: dict[int, range]) -> Array:
    for axis, position in positions.items():
        data = np.take(data, position, axis)
    return data


def part(node: Node, x: relax.Expr, axis: int, positions: range) -> relax.Expr:
    """Returns `x` at some positions of one axis."""
    if positions == range(shape_of(x)[axis]):
        return x
    if not positions:
        node.unsupported(f"selects an empty range on axis {axis} of shape {list(shape_of(x))}")
    if positions.step > 0:
        call = relax.op.strided_slice(x, [axis], [positions.start], [positions[-1] + 1], [positions.step])
    else:
        call = relax.op.take(x, node.literal(np.array(positions, np.int64)), axis, mode="clip")
    return node.emit(call, "part")


def split(node: Node) -> tuple[Value, ...]:
    """Splits the data into adjacent parts along one axis. Up to operator set 12, the lengths of the parts are an
    attribute; later, they are an input. By default, all parts have the same length, except that the last part may be
    shorter.
    """
    shape, count = node.shape(0), len(node.operator.outputs)
    axis = axis_of(node, len(shape), 0)
    sizes = node.integers(1) if node.has(1) else node.attribute("split", ())
    if not sizes:
        each = -(-shape[axis] // count)
        sizes = (*(each,) * (count - 1), shape[axis] - each * (count - 1))
    fits = len(sizes) == count and min(sizes) >= 0 and sum(sizes) == shape[axis]
    node.require(fits, f"cannot split {shape[axis]} elements into {list(sizes)[:8]} for {count} outputs")
    starts = np.cumsum([0, *sizes])
    ranges = [range(int(start), int(start) + size) for start, size in zip(starts, sizes, strict=False)]
    known, quantized = node.known_value(0), node.state.types.get(node.name(0))
    if known is not None:
        return tuple(node.folded(np.take(known, positions, axis)) for positions in ranges)
    if quantized is not None and quantized.is_per_tensor:
        node.state.types |= dict.fromkeys(filter(None, node.operator.outputs), quantized)
    return tuple(node.emit(part(node, node.expr(0), axis, positions), f"part{n}") for n, positions in enumerate(ranges))


def pad(node: Node) -> Value:
    """Inputs: data, pads, constant_value, axes. Up to operator set 10, pads and constant_value are attributes."""
    shape, rank = node.shape(0), len(node.shape(0))
    pads = node.integers(1) if node.has(1) else node.attribute("pads", ())
    named = node.integers(3) if node.has(3) else tuple(range(rank))
    node.require(len(pads) == 2 * len(named), f"has {len(pads)} pads for {len(named)} axes")
    node.require(
        all(-rank <= axis < rank for axis in named),
        f"has the axes {list(named)[:8]}, but its input has {rank} dimensions",
    )
    if min(pads, default=0) < 0:
        node.unsupported("has negative pads, which cannot be compiled; use a Slice")
    sides = [(0, 0)] * rank
    for axis, before, after in zip(named, pads[: len(named)], pads[len(named) :], strict=True):
        sides[axis] = (before, after)
    if max(pads, default=0) > _WIDEST:
        node.unsupported(f"pads by {max(pads)} elements; the limit is {_WIDEST}")
    mode = node.attribute("mode", "constant")
    if mode == "constant":
        value = node.number(2) if node.has(2) else float(node.attribute("value", 0.0))
        widths = [width for pair in sides for width in pair]
        return node.with_input_type(node.emit(relax.op.nn.pad(node.expr(0), widths, pad_value=value)))
    if mode not in ("edge", "reflect", "wrap"):
        node.unsupported(f"has the mode {mode}, which cannot be compiled")
    x = node.expr(0)
    for axis, (before, after) in enumerate(sides):
        node.require_supported(
            mode != "reflect" or max(before, after) < shape[axis],
            f"reflects {max(before, after)} elements, but axis {axis} has only {shape[axis]}",
        )
        if before or after:
            positions = np.pad(np.arange(shape[axis]), (before, after), mode=mode)
            x = node.emit(relax.op.take(x, node.literal(positions.astype(np.int64)), axis, mode="clip"), "padded")
    return node.with_input_type(node.emit(x))


def expand(node: Node) -> Value:
    """Inputs: data, shape. Broadcasts the data and the shape to one another."""
    known, wanted = node.known_value(0), node.integers(1)
    try:
        shape = np.broadcast_shapes(node.shape(0), wanted)
    except ValueError:
        node.malformed(f"cannot broadcast {list(node.shape(0))} to {list(wanted)[:8]}")
    if known is not None and math.prod(shape) <= 1 << 16:
        return node.folded(np.broadcast_to(known, shape))
    return node.with_input_type(node.emit(relax.op.broadcast_to(node.expr(0), shape)))


def tile(node: Node) -> Value:
    """Inputs: data, repeats."""
    repeats = node.integers(1)
    fits = len(repeats) == len(node.shape(0)) and min(repeats, default=1) >= 0
    node.require(fits, f"has invalid repeats {list(repeats)[:8]}")
    node.require_supported(min(repeats, default=1) > 0, "repeats its input 0 times, which leaves an empty tensor")
    known = node.known_value(0)
    if known is not None and known.size * math.prod(repeats) <= 1 << 16:
        return node.folded(np.tile(known, repeats))
    return node.with_input_type(node.emit(relax.op.tile(node.expr(0), list(repeats))))


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
    return _blocks(node, [*split_, height, width], order, (n, rest, height * block, width * block))


def space_to_depth(node: Node) -> Value:
    """Converts `[N, C, H * b, W * b]` to `[N, C * b * b, H, W]`."""
    (n, channels, height, width), block = _image(node)
    node.require(
        height % block == 0 and width % block == 0, f"cannot divide {height} by {width} pixels into blocks of {block}"
    )
    rows, columns = height // block, width // block
    cut = [n, channels, rows, block, columns, block]
    return _blocks(node, cut, (0, 3, 5, 1, 2, 4), (n, channels * block * block, rows, columns))


def _image(node: Node) -> tuple[tuple[int, ...], int]:
    shape, block = node.shape(0), node.attribute("blocksize", 0)
    node.require(
        len(shape) == 4 and block > 0, f"has an input {list(shape)} and the blocksize {block}, which do not fit"
    )
    return shape, block


def _blocks(node: Node, cut: Sequence[int], order: Sequence[int], shape: Sequence[int]) -> Value:
    parts = node.emit(relax.op.reshape(node.expr(0), list(cut)), "cut")
    moved = node.emit(relax.op.permute_dims(parts, list(order)), "moved")
    return node.with_input_type(node.emit(relax.op.reshape(moved, list(shape))))
