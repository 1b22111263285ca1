"""Operators that only move elements or have no effect."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.builder import movement
from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.values import Value
from service.core.models.arrays import Array

_MOST_PARTS = 1 << 10
# Modes -> their names in NumPy.
_OF_ELEMENTS: dict[str, movement.Mode] = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def move_elements(node: Node, x: Value, function: Callable[..., relax.Var], *arguments: Any) -> Value:
    """Applies a function of `builder.movement` to a tensor. The result has the tensor's type."""
    return Value(function(node, x.expr, *arguments), x.quantized, x.exact_scale)


def _reshape(node: Node, input: Any, shape: Any) -> Value:
    return move_elements(node, node.tensor(input), movement.reshape, node.sizes(shape))


def _flatten(node: Node, input: Any, start_dim: Any = 0, end_dim: Any = -1) -> Value:
    x = node.tensor(input)
    rank = len(x.shape)
    if rank == 0:
        return move_elements(node, x, movement.reshape, [1])
    start, end = node.axis(start_dim, rank), node.axis(end_dim, rank)
    node.require(start <= end, "flattens dimensions in reverse order")
    shape = [*x.shape[:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :]]
    return move_elements(node, x, movement.reshape, shape)


def _unflatten(node: Node, input: Any, dim: Any, sizes: Any) -> Value:
    x = node.tensor(input)
    axis = node.axis(dim, len(x.shape))
    parts = movement.inferred(node, x.shape[axis : axis + 1], node.sizes(sizes))
    return move_elements(node, x, movement.reshape, [*x.shape[:axis], *parts, *x.shape[axis + 1 :]])


def _permute(node: Node, input: Any, dims: Any) -> Value:
    return move_elements(node, node.tensor(input), movement.transpose, node.sizes(dims))


def _transpose(node: Node, input: Any, dim0: Any, dim1: Any) -> Value:
    x = node.tensor(input)
    axes = list(range(len(x.shape)))
    first, second = node.axis(dim0, len(axes)), node.axis(dim1, len(axes))
    axes[first], axes[second] = second, first
    return move_elements(node, x, movement.transpose, axes)


def _squeeze(node: Node, input: Any, dim: Any = None) -> Value:
    x = node.tensor(input)
    dims = range(len(x.shape)) if dim is None else node.axes(node.sizes(dim), len(x.shape))
    return move_elements(node, x, movement.reshape, [n for axis, n in enumerate(x.shape) if axis not in dims or n != 1])


def _unsqueeze(node: Node, input: Any, dim: Any) -> Value:
    return move_elements(node, node.tensor(input), movement.unsqueeze, [node.integer(dim)])


def part_of(node: Node, x: Value, axis: int, positions: range) -> Value:
    """Returns some positions of one axis."""
    return move_elements(node, x, movement.cut, axis, positions, "")


def _slice(node: Node, input: Any, dim: Any = 0, start: Any = None, end: Any = None, step: Any = 1) -> Value:
    x = node.tensor(input)
    axis = node.axis(dim, len(x.shape))
    first, last = (None if each is None else _index(node, each) for each in (start, end))
    return part_of(node, x, axis, range(x.shape[axis])[first : last : node.integer(step, 1)])


def _index(node: Node, value: Any) -> int:
    """Returns a bound of a slice. The largest integer means the end."""
    return value if type(value) is int and -(1 << 63) <= value < 1 << 63 else node.integer(value)


def _select(node: Node, input: Any, dim: Any, index: Any) -> Value:
    x = node.tensor(input)
    axis = node.axis(dim, len(x.shape))
    position = node.axis(index, x.shape[axis])
    part = part_of(node, x, axis, range(position, position + 1))
    return move_elements(node, part, movement.reshape, [*x.shape[:axis], *x.shape[axis + 1 :]])


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
    movement.split_sizes(node, size, sizes, len(sizes))
    return [part_of(node, x, axis, range(end - part, end)) for part, end in zip(sizes, accumulate(sizes), strict=True)]


def _unbind(node: Node, input: Any, dim: Any = 0) -> list[Value]:
    """Returns, for each position along one axis, the elements at that position, without the axis."""
    x = node.tensor(input)
    axis = node.axis(dim, len(x.shape))
    node.require(x.shape[axis] <= _MOST_PARTS, f"makes {x.shape[axis]} parts; at most {_MOST_PARTS} can be compiled")
    return [_select(node, x, axis, index) for index in range(x.shape[axis])]


def _roll(node: Node, input: Any, shifts: Any, dims: Any = ()) -> Value:
    """Rotates elements along some axes: elements that move beyond the end continue at the front."""
    x = node.tensor(input)
    steps, along = node.sizes(shifts), node.sizes(dims)
    if not along:
        node.unsupported("rolls over all dimensions at once")
    node.require(len(steps) == len(along), f"has {len(steps)} shifts for {len(along)} dimensions")
    for step, axis in zip(steps, node.axes(along, len(x.shape)), strict=True):
        size = x.shape[axis]
        x = move_elements(node, x, movement.take, axis, size, partial(_rolled, size, step), "rolled")
    return x


def _rolled(size: int, step: int) -> Array:
    return np.roll(np.arange(size), step)


def _repeat(node: Node, input: Any, repeats: Any) -> Value:
    return move_elements(node, node.tensor(input), movement.tile, node.sizes(repeats))


def _pad(node: Node, input: Any, pad: Any, mode: Any = "constant", value: Any = None) -> Value:
    """Pads before and after each axis, with a number or with elements of the operand. The pads begin with the last
    axis.
    """
    x = node.tensor(input)
    sides = _sides(node, pad, len(x.shape))
    if mode == "constant":
        return move_elements(
            node, x, movement.pad, sides, _filling(node, x, 0.0 if value is None else node.real(value))
        )
    if mode not in _OF_ELEMENTS:
        node.unsupported(f"has the unknown padding mode {str(mode)[:20]!a}")
    if mode == "circular":
        fits = all(max(pair) <= size for pair, size in zip(sides, x.shape, strict=True))
        node.require(fits, f"pads by {list(sides)} of its elements, but has only {list(x.shape)}")
    return move_elements(node, x, movement.pad_with_elements, sides, _OF_ELEMENTS[mode])


def _constant_pad(node: Node, input: Any, pad: Any, value: Any = 0) -> Value:
    return _pad(node, input, pad, "constant", value)


def _sides(node: Node, pad: Any, rank: int) -> list[tuple[int, int]]:
    """Returns the padding before and after each axis."""
    widths = node.sizes(pad)
    node.require(len(widths) % 2 == 0 and len(widths) <= 2 * rank, f"has {len(widths)} pads for {rank} dimensions")
    movement.check_pads(node, widths)
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
    order, shape = [0, 3, 1, 4, 2], [*rest, apart[-5], height * factor, width * factor]
    return move_elements(node, x, movement.rearrange, apart, _behind(len(rest), order), shape)


def _pixel_unshuffle(node: Node, input: Any, downscale_factor: Any) -> Value:
    """Converts `[…, C, H r, W r]` to `[…, C r², H, W]`."""
    x, factor = node.tensor(input), node.integer(downscale_factor, 1)
    node.require(len(x.shape) >= 3, f"on a tensor with {len(x.shape)} dimensions; it needs at least 3")
    *rest, channels, height, width = x.shape
    node.require(height % factor == width % factor == 0, f"cannot divide images of {height} x {width} by {factor}")
    apart = [*rest, channels, height // factor, factor, width // factor, factor]
    order, shape = [0, 2, 4, 1, 3], [*rest, channels * factor**2, apart[-4], apart[-2]]
    return move_elements(node, x, movement.rearrange, apart, _behind(len(rest), order), shape)


def _behind(first: int, order: list[int]) -> list[int]:
    """Returns an order that keeps the first axes."""
    return [*range(first), *(first + axis for axis in order)]


def _channel_shuffle(node: Node, input: Any, groups: Any) -> Value:
    """Converts a channel shuffle: the result contains the first channel of each group, then the second of each group,
    and so on.
    """
    x, count = node.tensor(input), node.integer(groups, 1)
    node.require(len(x.shape) >= 3, f"on a tensor with {len(x.shape)} dimensions; it needs at least 3")
    batch, channels, *positions = x.shape
    node.require(channels % count == 0, f"cannot divide {channels} channels into {count} groups")
    apart = [batch, count, channels // count, math.prod(positions)]
    return move_elements(node, x, movement.rearrange, apart, [0, 2, 1, 3], list(x.shape))


def _stack(node: Node, tensors: Any, dim: Any = 0) -> Value:
    parts = [node.tensor(part) for part in node.parts(tensors)]
    if len({(part.dtype, part.quantized) for part in parts}) > 1:
        node.unsupported("joins tensors with different types or scales")
    return Value(movement.stack(node, [part.expr for part in parts], node.integer(dim)), parts[0].quantized)


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


def _count(node: Node, input: Any) -> int:
    return math.prod(node.tensor(input).shape)


RULES = {
    "aten::numel": _count,
    "aten::swapaxes": _transpose,
    "aten::swapdims": _transpose,
    "aten::squeeze_": _squeeze,
    "aten::unsqueeze_": _unsqueeze,
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
