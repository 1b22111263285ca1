"""Operators that only move elements or have no effect."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any, Literal

import numpy as np
from tvm import relax

from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.values import Value

_MOST_PARTS = 1 << 10
_WIDEST = 1 << 16  # limit of the padding on one side of an axis
# Modes -> their names in NumPy.
_OF_ELEMENTS: dict[str, Literal["reflect", "edge", "wrap"]] = {
    "reflect": "reflect",
    "replicate": "edge",
    "circular": "wrap",
}


def _reshaped(node: Node, x: Value, shape: list[int]) -> Value:
    return Value(node.emit(relax.op.reshape(x.expr, shape)), x.quantized, x.exact_scale)


def _reshape(node: Node, input: Any, shape: Any) -> Value:
    x, sizes = node.tensor(input), node.sizes(shape)
    count = math.prod(x.shape)
    sizes = _inferred(sizes, count)
    node.require(math.prod(sizes) == count and min(sizes, default=0) >= 0, f"cannot reshape {list(x.shape)} to {sizes}")
    return _reshaped(node, x, sizes)


def _flatten(node: Node, input: Any, start_dim: Any = 0, end_dim: Any = -1) -> Value:
    x = node.tensor(input)
    rank = len(x.shape)
    if rank == 0:
        return _reshaped(node, x, [1])
    start, end = node.axis(start_dim, rank), node.axis(end_dim, rank)
    node.require(start <= end, "flattens dimensions in reverse order")
    return _reshaped(node, x, [*x.shape[:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :]])


def _unflatten(node: Node, input: Any, dim: Any, sizes: Any) -> Value:
    x = node.tensor(input)
    axis = node.axis(dim, len(x.shape))
    return _reshape(node, x, [*x.shape[:axis], *_inferred(node.sizes(sizes), x.shape[axis]), *x.shape[axis + 1 :]])


def _inferred(sizes: list[int], count: int) -> list[int]:
    """Returns `sizes` with -1 replaced so that there are `count` elements."""
    known = math.prod(size for size in sizes if size >= 0)
    fits = sizes.count(-1) == 1 and known and count % known == 0
    return [count // known if size == -1 else size for size in sizes] if fits else sizes


def _permute(node: Node, input: Any, dims: Any) -> Value:
    x = node.tensor(input)
    axes = [node.axis(dim, len(x.shape)) for dim in node.sizes(dims)]
    node.require(sorted(axes) == list(range(len(x.shape))), f"cannot permute {len(x.shape)} dimensions by {axes}")
    return node.value(relax.op.permute_dims(x.expr, axes), x.quantized)


def _transpose(node: Node, input: Any, dim0: Any, dim1: Any) -> Value:
    x = node.tensor(input)
    axes = list(range(len(x.shape)))
    first, second = node.axis(dim0, len(axes)), node.axis(dim1, len(axes))
    axes[first], axes[second] = second, first
    return node.value(relax.op.permute_dims(x.expr, axes), x.quantized)


def _squeeze(node: Node, input: Any, dim: Any = None) -> Value:
    x = node.tensor(input)
    dims = range(len(x.shape)) if dim is None else [node.axis(each, len(x.shape)) for each in node.sizes(dim)]
    return _reshaped(node, x, [size for axis, size in enumerate(x.shape) if axis not in dims or size != 1])


def _unsqueeze(node: Node, input: Any, dim: Any) -> Value:
    x = node.tensor(input)
    axis = node.axis(dim, len(x.shape) + 1)
    return _reshaped(node, x, [*x.shape[:axis], 1, *x.shape[axis:]])


def _cut(node: Node, x: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
    """Returns the elements `start`, `start + step` … before `stop` along an axis. There must be at least one."""
    node.require(
        0 <= start < stop <= x.shape[axis] and step > 0, f"cannot select {start}:{stop} from {x.shape[axis]} elements"
    )
    return node.value(relax.op.strided_slice(x.expr, [axis], [start], [stop], [step]), x.quantized)


def _slice(node: Node, input: Any, dim: Any = 0, start: Any = None, end: Any = None, step: Any = 1) -> Value:
    x = node.tensor(input)
    axis = node.axis(dim, len(x.shape))
    size = x.shape[axis]
    bounds = slice(*(None if each is None else _index(node, each) for each in (start, end))).indices(size)
    return _cut(node, x, axis, *bounds[:2], node.integer(step, 1))


def _index(node: Node, value: Any) -> int:
    """Returns a bound of a slice. The largest integer means the end."""
    return value if type(value) is int and -(1 << 63) <= value < 1 << 63 else node.integer(value)


def _select(node: Node, input: Any, dim: Any, index: Any) -> Value:
    x = node.tensor(input)
    axis = node.axis(dim, len(x.shape))
    position = node.axis(index, x.shape[axis])
    return _reshaped(node, _cut(node, x, axis, position, position + 1), [*x.shape[:axis], *x.shape[axis + 1 :]])


def _chunk(node: Node, input: Any, chunks: Any, dim: Any = 0) -> list[Value]:
    x = node.tensor(input)
    axis = node.axis(dim, len(x.shape))
    return _split(node, x, -(-x.shape[axis] // node.integer(chunks, 1)), axis)


def _split(node: Node, input: Any, split_size: Any, dim: Any = 0) -> list[Value]:
    """Splits into parts of one size, of which the last may be smaller, or into parts whose sizes are in a list."""
    x = node.tensor(input)
    axis = node.axis(dim, len(x.shape))
    size = x.shape[axis]
    sizes = node.sizes(split_size)
    if not isinstance(split_size, list | tuple):
        node.require(sizes[0] > 0, "splits into empty parts")
        sizes = [min(sizes[0], size - start) for start in range(0, size, sizes[0])]
    ends = list(accumulate(sizes))
    node.require(ends[-1:] == [size], f"cannot split {size} elements into parts of {sizes[:8]}")
    return [_cut(node, x, axis, end - part, end) for part, end in zip(sizes, ends, strict=True)]


def _unbind(node: Node, input: Any, dim: Any = 0) -> list[Value]:
    """Returns, for each position along one axis, the elements at that position, without the axis."""
    x = node.tensor(input)
    axis = node.axis(dim, len(x.shape))
    node.require(x.shape[axis] <= _MOST_PARTS, f"makes {x.shape[axis]} parts; at most {_MOST_PARTS} can be compiled")
    return [_select(node, x, axis, index) for index in range(x.shape[axis])]


def _roll(node: Node, input: Any, shifts: Any, dims: Any = ()) -> Value:
    """Rotates elements along some axes: elements that move beyond the end continue at the front."""
    x = node.tensor(input)
    moved, along = node.sizes(shifts), node.sizes(dims)
    if not along:
        node.unsupported("rolls over all dimensions at once")
    node.require(len(moved) == len(along), "has {len(moved)} shifts for {len(along)} dimensions")
    result = x.expr
    for shift, dim in zip(moved, along, strict=True):
        axis = node.axis(dim, len(x.shape))
        positions = np.roll(np.arange(x.shape[axis], dtype=np.int64), shift)
        result = node.emit(relax.op.take(result, relax.const(positions, "int64"), axis, mode="clip"), "rolled")
    return Value(result, x.quantized)


def _repeat(node: Node, input: Any, repeats: Any) -> Value:
    x, times = node.tensor(input), node.sizes(repeats)
    node.require(len(times) >= len(x.shape) and min(times) > 0, f"cannot repeat shape {list(x.shape)} {times} times")
    return node.value(relax.op.tile(x.expr, times), x.quantized)


def _pad(node: Node, input: Any, pad: Any, mode: Any = "constant", value: Any = None) -> Value:
    """Pads before and after each axis, with a number or with elements of the operand. The pads begin with the last
    axis.
    """
    x = node.tensor(input)
    sides = _sides(node, pad, len(x.shape))
    if mode == "constant":
        fill = 0.0 if value is None else node.real(value)
        widths = [width for pair in sides for width in pair]
        return node.value(relax.op.nn.pad(x.expr, widths, pad_value=_filling(node, x, fill)), x.quantized)
    if mode not in _OF_ELEMENTS:
        node.unsupported(f"has the unknown padding mode {str(mode)[:20]!a}")
    result = x.expr
    for axis, (before, behind) in enumerate(sides):
        size = x.shape[axis]
        most = {"reflect": size - 1, "circular": size}.get(mode, _WIDEST)
        node.require(
            max(before, behind) <= most and size > 0, f"pads {size} elements with more elements than there are"
        )
        if before or behind:
            positions = np.pad(np.arange(size, dtype=np.int64), (before, behind), mode=_OF_ELEMENTS[mode])
            result = node.emit(relax.op.take(result, relax.const(positions, "int64"), axis, mode="clip"), "padded")
    return Value(result, x.quantized)


def _constant_pad(node: Node, input: Any, pad: Any, value: Any = 0) -> Value:
    return _pad(node, input, pad, "constant", value)


def _sides(node: Node, pad: Any, rank: int) -> list[tuple[int, int]]:
    """Returns the padding before and after each axis."""
    widths = node.sizes(pad)
    node.require(len(widths) % 2 == 0 and len(widths) <= 2 * rank, f"has {len(widths)} pads for {rank} dimensions")
    if min(widths, default=0) < 0:
        node.unsupported("has negative padding", hint="slice it instead")
    if max(widths, default=0) > _WIDEST:
        node.unsupported(f"pads by {max(widths)} elements; at most {_WIDEST} can be compiled")
    last_first = list(zip(widths[::2], widths[1::2], strict=True))
    return [*[(0, 0)] * (rank - len(last_first)), *last_first[::-1]]


def _filling(node: Node, x: Value, real: float) -> float:
    """Returns the value that represents a number in an operand. The operand may contain stored values."""
    if x.quantized is None:
        return real
    point = x.quantized.zero_point
    if real != 0 or not x.quantized.min <= point <= x.quantized.max:
        node.unsupported(f"pads stored values with {real:g}, which may not be representable")
    return float(point)


def _pixel_shuffle(node: Node, input: Any, upscale_factor: Any) -> Value:
    """Converts `[…, C r², H, W]` to `[…, C, H r, W r]`."""
    x, factor = node.tensor(input), node.integer(upscale_factor, 1)
    node.require(len(x.shape) >= 3, f"on a tensor with {len(x.shape)} dimensions; it needs at least 3")
    *rest, channels, height, width = x.shape
    node.require(channels % factor**2 == 0, f"cannot enlarge images {factor} times with {channels} channels")
    apart = [*rest, channels // factor**2, factor, factor, height, width]
    return _rearranged(node, x, apart, [0, 3, 1, 4, 2], [*rest, apart[-5], height * factor, width * factor])


def _pixel_unshuffle(node: Node, input: Any, downscale_factor: Any) -> Value:
    """Converts `[…, C, H r, W r]` to `[…, C r², H, W]`."""
    x, factor = node.tensor(input), node.integer(downscale_factor, 1)
    node.require(len(x.shape) >= 3, f"on a tensor with {len(x.shape)} dimensions; it needs at least 3")
    *rest, channels, height, width = x.shape
    node.require(height % factor == width % factor == 0, f"cannot divide images of {height} x {width} by {factor}")
    apart = [*rest, channels, height // factor, factor, width // factor, factor]
    return _rearranged(node, x, apart, [0, 2, 4, 1, 3], [*rest, channels * factor**2, apart[-4], apart[-2]])


def _channel_shuffle(node: Node, input: Any, groups: Any) -> Value:
    """Converts a channel shuffle: the result contains the first channel of each group, then the second of each group,
    and so on.
    """
    x, count = node.tensor(input), node.integer(groups, 1)
    node.require(len(x.shape) >= 3, f"on a tensor with {len(x.shape)} dimensions; it needs at least 3")
    batch, channels, *positions = x.shape
    node.require(channels % count == 0, f"cannot divide {channels} channels into {count} groups")
    rows = node.value(relax.op.reshape(x.expr, [batch, count, channels // count, math.prod(positions)]), x.quantized)
    turned = node.emit(relax.op.permute_dims(rows.expr, [0, 2, 1, 3]), "turned")
    return node.value(relax.op.reshape(turned, list(x.shape)), x.quantized)


def _rearranged(node: Node, x: Value, apart: list[int], order: list[int], shape: list[int]) -> Value:
    """Reshapes `x` to `apart`, permutes its last five axes by `order`, and reshapes it to `shape`."""
    first = len(apart) - 5
    axes = [*range(first), *(first + axis for axis in order)]
    wide = node.emit(relax.op.reshape(x.expr, apart), "apart")
    turned = node.emit(relax.op.permute_dims(wide, axes), "turned")
    return node.value(relax.op.reshape(turned, shape), x.quantized)


def _stack(node: Node, tensors: Any, dim: Any = 0) -> Value:
    parts = [node.tensor(part) for part in (tensors if isinstance(tensors, list | tuple) else [])]
    node.require(bool(parts), "joins something other than a list of tensors")
    node.require(len({(part.shape, part.dtype) for part in parts}) == 1, "joins tensors of different shapes or types")
    if len({part.quantized for part in parts}) > 1:
        node.unsupported("joins tensors with different scales")
    axis = node.axis(dim, len(parts[0].shape) + 1)
    wide = [_unsqueeze(node, part, axis).expr for part in parts]
    return node.value(relax.op.concat(wide, axis), parts[0].quantized)


def _same(node: Node, input: Any, *_: Any, **__: Any) -> Value:
    """Converts operators that only change the memory layout, which the compiler chooses."""
    return node.tensor(input)


def _dropout(node: Node, input: Any, p: Any = 0.5, train: Any = False) -> Value:
    if node.flag(train):
        node.unsupported("drops elements at random", hint="call model.eval() before the model is saved")
    return node.tensor(input)


def _size(node: Node, input: Any, dim: Any = None) -> Any:
    shape = node.tensor(input).shape
    return list(shape) if dim is None else shape[node.axis(dim, len(shape))]


def _rank(node: Node, input: Any) -> int:
    return len(node.tensor(input).shape)


RULES = {
    "aten::reshape": _reshape,
    "aten::view": _reshape,
    "aten::flatten": _flatten,
    "aten::unflatten": _unflatten,
    "aten::permute": _permute,
    "aten::transpose": _transpose,
    "aten::squeeze": _squeeze,
    "aten::unsqueeze": _unsqueeze,
    "aten::slice": _slice,
    "aten::select": _select,
    "aten::chunk": _chunk,
    "aten::unbind": _unbind,
    "aten::roll": _roll,
    "aten::repeat": _repeat,
    "aten::pad": _pad,
    "aten::constant_pad_nd": _constant_pad,
    "aten::channel_shuffle": _channel_shuffle,
    "aten::pixel_shuffle": _pixel_shuffle,
    "aten::pixel_unshuffle": _pixel_unshuffle,
    "aten::stack": _stack,
    "aten::split": _split,
    "aten::split_with_sizes": _split,
    "aten::sym_size": _size,
    "aten::contiguous": _same,
    "aten::clone": _same,
    "aten::detach": _same,
    "aten::dropout": _dropout,
    "aten::dropout_": _dropout,
    "aten::feature_dropout": _dropout,
    "aten::size": _size,
    "aten::dim": _rank,
    "quantized::dropout": _dropout,
}
