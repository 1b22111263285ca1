"""Operators of float32 tensors that move, select or repeat elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from service.compiler.importers.mxnet.node import Node, Tensor, Value
from service.core.models.arrays import Array

_SAME, _REST, _PRODUCT, _SPLIT = 0, -2, -3, -4  # codes of Reshape, besides -1
_MOST_REPEATS = 1 << 16


def reshape(node: Node) -> list[Value]:
    """`Reshape` (`InferReshapeShape` in src/operator/tensor/matrix_op-inl.h). The target has codes for sizes of the
    input: 0 keeps a size, -1 is inferred, -2 keeps all others, -3 multiplies two, -4 splits one into the two that
    follow.
    """
    x = node.tensor(0, "float32")
    target = node.attributes.integers("shape", least=-4)
    node.require_supported(bool(target), "has no target shape (the attribute shape)")
    shape = list(x.shape)
    if node.attributes.flag("reverse"):
        return [_reshaped(node, x, _target(node, shape[::-1], target[::-1])[::-1])]
    return [_reshaped(node, x, _target(node, shape, target))]


def _target(node: Node, shape: Sequence[int], target: Sequence[int]) -> list[int]:
    found: list[int] = []
    source, codes = list(shape), list(target)

    def take() -> int:
        node.require(bool(source), f"reshapes {list(shape)} by {list(target)}, which reads more sizes than it has")
        return source.pop(0)

    while codes:
        code = codes.pop(0)
        if code == _SAME:
            found.append(take())
        elif code == _REST:
            found += source
            source = []
        elif code == _PRODUCT:
            found.append(take() * take())
        elif code == _SPLIT:
            node.require(len(codes) >= 2, "splits an axis without two sizes")
            whole, parts = take(), [codes.pop(0), codes.pop(0)]
            open_part = next((index for index, part in enumerate(parts) if part == -1), None)
            if open_part is not None:
                node.require(parts[1 - open_part] > 0, "splits an axis into two open parts")
                parts[open_part] = whole // parts[1 - open_part]
            node.require(math.prod(parts) == whole, f"splits {whole} elements into {parts}")
            found += parts
        else:
            found.append(code)
            if source:
                source.pop(0)
    return found


def _reshaped(node: Node, x: Tensor, target: Sequence[int]) -> Value:
    return node.standard("Reshape", x.expr, np.array(target, np.int64))[0]


def transpose(node: Node) -> list[Value]:
    x = node.tensor(0, "float32")
    axes = node.attributes.integers("axes", least=-8) or tuple(range(len(x.shape)))[::-1]
    return node.standard("Transpose", x.expr, perm=tuple(node.axes(axes, len(x.shape))))


def swap_axes(node: Node) -> list[Value]:
    x = node.tensor(0, "float32")
    order = list(range(len(x.shape)))
    one, other = (node.axis(node.attributes.integer(name, 0, least=-8), len(order)) for name in ("dim1", "dim2"))
    order[one], order[other] = order[other], order[one]
    return node.standard("Transpose", x.expr, perm=tuple(order))


def expand_dims(node: Node) -> list[Value]:
    return node.standard("Unsqueeze", node.real(0), _axes(node.attributes.integer("axis", 0, least=-8)))


def squeeze(node: Node) -> list[Value]:
    axes = named_axes(node)
    return node.standard("Squeeze", node.real(0), *([_axes(*axes)] if axes else []))


def concat(node: Node) -> list[Value]:
    """`Concat` of float32 tensors."""
    parts = [node.real(index) for index in range(len(node.node.inputs))]
    return node.standard("Concat", *parts, axis=node.attributes.integer("dim", 1, least=-8))


def stack(node: Node) -> list[Value]:
    axis = node.attributes.integer("axis", 0, least=-8)
    parts = [node.step("Unsqueeze", node.real(index), _axes(axis)) for index in range(len(node.node.inputs))]
    return node.standard("Concat", *parts, axis=axis)


def slice_axis(node: Node) -> list[Value]:
    axis, begin = node.attributes.integer("axis", 0, least=-8), node.attributes.integer("begin", 0, least=-(1 << 31))
    end = node.attributes.integer("end", 0, least=-(1 << 31)) if node.attributes.has("end") else None
    return _sliced(node, [axis], [begin], [end], [1])


def slice_(node: Node) -> list[Value]:
    begin, end, step = (node.attributes.open_integers(name) for name in ("begin", "end", "step"))
    node.require(len(begin) == len(end) and len(step) in (0, len(begin)), "has lists of different lengths")
    return _sliced(node, range(len(begin)), begin, end, step or [1] * len(begin))


def _sliced(
    node: Node,
    axes: Sequence[int],
    begin: Sequence[int | None],
    end: Sequence[int | None],
    step: Sequence[int | None],
) -> list[Value]:
    steps = [each or 1 for each in step]
    starts = [(0 if by > 0 else -1) if at is None else at for at, by in zip(begin, steps, strict=True)]
    far = (1 << 31) - 1
    stops = [(far if by > 0 else -far) if at is None else at for at, by in zip(end, steps, strict=True)]
    return node.standard("Slice", node.real(0), *(np.array(each, np.int64) for each in (starts, stops, axes, steps)))


def slice_like(node: Node) -> list[Value]:
    """`slice_like`: cuts the first input to the shape of the second, along some axes or all."""
    x, like = node.tensor(0, "float32"), node.tensor(1, "float32")
    axes = node.axes(named_axes(node, "axes"), len(x.shape)) or list(range(len(x.shape)))
    node.require(max(axes, default=-1) < len(like.shape), f"cuts axes {axes} to the shape {list(like.shape)}")
    return _sliced(node, axes, [0] * len(axes), [like.shape[axis] for axis in axes], [1] * len(axes))


def split(node: Node) -> list[Value]:
    """`SliceChannel`: parts of equal size along an axis."""
    x = node.tensor(0, "float32")
    count, axis = node.attributes.integer("num_outputs", 1), node.attributes.integer("axis", 1, least=-8)
    length = x.shape[node.axis(axis, len(x.shape))]
    node.require(length % count == 0, f"splits {length} elements into {count} equal parts")
    sizes = np.full(count, length // count, np.int64)
    parts = node.standard("Split", x.expr, sizes, results=count, axis=axis)
    if not node.attributes.flag("squeeze_axis"):
        return parts
    return [node.standard("Squeeze", _expr(part), _axes(axis))[0] for part in parts]


def tile(node: Node) -> list[Value]:
    x, times = node.tensor(0, "float32"), node.attributes.integers("reps", least=0)
    padded = (1,) * (len(x.shape) - len(times)) + times
    wide = node.step("Reshape", x.expr, np.array((1,) * (len(padded) - len(x.shape)) + x.shape, np.int64))
    return node.standard("Tile", wide, np.array(padded, np.int64))


def repeat(node: Node) -> list[Value]:
    """`repeat`: each element several times, along an axis, or in one row of all elements."""
    x, times = node.tensor(0, "float32"), node.attributes.integer("repeats", 1)
    node.require_supported(times <= _MOST_REPEATS, f"repeats each element {times} times")
    expr, shape, axis = x.expr, x.shape, 0
    if node.attributes.has("axis"):
        axis = node.axis(node.attributes.integer("axis", 0, least=-8), len(shape))
    else:
        shape = (math.prod(shape),)
        expr = node.step("Reshape", expr, np.array(shape, np.int64))
    places = np.repeat(np.arange(shape[axis], dtype=np.int64), times)
    return node.standard("Gather", expr, places, axis=axis)


def pad(node: Node) -> list[Value]:
    widths = node.attributes.integers("pad_width", least=0)
    mode = node.choice("mode", "constant", "constant", "edge", "reflect")
    value = np.array(node.attributes.number("constant_value", 0.0), np.float32)
    pads = np.array([*widths[::2], *widths[1::2]], np.int64)
    return node.standard("Pad", node.real(0), pads, value if mode == "constant" else None, mode=mode)


def broadcast_to(node: Node) -> list[Value]:
    x, target = node.tensor(0, "float32"), node.attributes.integers("shape", least=0)
    node.require(len(target) == len(x.shape), f"broadcasts {list(x.shape)} to {list(target)}")
    shape = [own if size == 0 else size for own, size in zip(x.shape, target, strict=True)]
    return node.standard("Expand", x.expr, np.array(shape, np.int64))


def broadcast_axis(node: Node) -> list[Value]:
    x = node.tensor(0, "float32")
    axes, sizes = node.axes(named_axes(node), len(x.shape)), node.attributes.integers("size", least=1)
    node.require(len(axes) == len(sizes), "has different numbers of axes and sizes")
    shape = list(x.shape)
    for axis, size in zip(axes, sizes, strict=True):
        node.require(shape[axis] == 1, f"broadcasts axis {axis} of the shape {list(x.shape)}")
        shape[axis] = size
    return node.standard("Expand", x.expr, np.array(shape, np.int64))


def broadcast_like(node: Node) -> list[Value]:
    node.require_supported(not node.attributes.has("lhs_axes"), "broadcasts only some axes, which cannot be compiled")
    return node.standard("Expand", node.real(0), np.array(node.tensor(1, "float32").shape, np.int64))


def depth_to_space(node: Node) -> list[Value]:
    return node.standard("DepthToSpace", node.real(0), blocksize=node.attributes.integer("block_size", 1), mode="DCR")


def space_to_depth(node: Node) -> list[Value]:
    return node.standard("SpaceToDepth", node.real(0), blocksize=node.attributes.integer("block_size", 1))


def filled(value: float, *, like: bool = False) -> Callable[[Node], list[Value]]:
    """Returns the rule of `_zeros` and `_ones`, or of `zeros_like` and `ones_like`."""

    def convert(node: Node) -> list[Value]:
        shape = node.tensor(0, "float32").shape if like else node.attributes.integers("shape", least=1)
        dtype = node.attributes.text("dtype", "float32")
        node.require_supported(dtype in ("float32", "None"), f"fills a tensor of {dtype!a:.20}, not of float32")
        node.reserve(4 * math.prod(shape))
        return [np.full(shape, value, np.float32)]

    return convert


def named_axes(node: Node, name: str = "axis") -> tuple[int, ...]:
    """Returns an attribute that is an axis, a tuple of axes, or None."""
    text = node.attributes.text(name, "None").strip()
    if text == "None":
        return ()
    if text[:1] in "([":
        return node.attributes.integers(name, least=-8)
    return (node.attributes.integer(name, 0, least=-8),)


def _axes(*axes: int) -> Array:
    return np.array(axes, np.int64)


def _expr(value: Value) -> Any:
    return value.expr if isinstance(value, Tensor) else value
