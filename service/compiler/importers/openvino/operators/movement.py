"""Layers that move, select or repeat elements. Stored values stay stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from service.compiler.importers.openvino.node import Node
from service.compiler.importers.openvino.operators.quantizing import reshaped, transposed
from service.compiler.importers.openvino.values import Compressed, Stored, Value
from service.core.models.arrays import Array

Convert = Callable[[Node], list[Value]]
_FAR = (1 << 31) - 1


def reshape(node: Node) -> list[Value]:
    """`Reshape`. With `special_zero`, 0 keeps the size of the input."""
    node.count(2)
    shape, given = node.shape(0), list(node.integers(1))
    special = node.attributes.flag("special_zero")
    node.require(not special or 0 not in given[len(shape) :], f"keeps sizes that {list(shape)} does not have")
    target = [shape[axis] if size == 0 and special else size for axis, size in enumerate(given)]
    rest = math.prod(size for size in target if size != -1)
    if target.count(-1) == 1 and rest > 0:
        target[target.index(-1)] = math.prod(shape) // rest
    whole = all(size >= 0 for size in target) and math.prod(target) == math.prod(shape)
    node.require(whole, f"cannot reshape {list(shape)} to {given[:8]}")
    weights = reshaped(node, tuple(target))
    return [weights] if weights is not None else node.move_by("Reshape", _list(target), allowzero=1)


def transpose(node: Node) -> list[Value]:
    node.count(2)
    rank = len(node.shape(0))
    order = node.axes(node.integers(1), rank) or list(range(rank))[::-1]
    node.require(sorted(order) == list(range(rank)), f"cannot permute {rank} axes by {order[:8]}")
    weights = transposed(node, order)
    return [weights] if weights is not None else node.move_by("Transpose", perm=tuple(order))


def squeeze(node: Node) -> list[Value]:
    node.count(1, 2)
    axes = [_list(node.integers(1))] if node.input_count == 2 else []
    return node.move_by("Squeeze", *axes)


def unsqueeze(node: Node) -> list[Value]:
    node.count(2)
    return node.move_by("Unsqueeze", _list(node.integers(1)))


def concat(node: Node) -> list[Value]:
    """`Concat`. Parts that are all stored in one type stay stored."""
    axis, parts = node.attributes.integer("axis"), [node.value(index) for index in range(node.input_count)]
    first = parts[0]
    if isinstance(first, Stored) and all(isinstance(each, Stored) and each.type == first.type for each in parts):
        return node.move_by("Concat", *(each.expr for each in parts[1:]), axis=axis)
    return node.standard("Concat", *(node.real(index) for index in range(node.input_count)), axis=axis)


def split(node: Node) -> list[Value]:
    node.count(2)
    count = node.attributes.integer("num_splits")
    axis = node.axis(int(node.number(1)), len(node.shape(0)))
    length = node.shape(0)[axis]
    node.require(count > 0 and length % count == 0, f"splits {length} elements into {count} equal parts")
    return node.move_by("Split", _list([length // count] * count), results=count, axis=axis)


def variadic_split(node: Node) -> list[Value]:
    node.count(3)
    axis, sizes = node.axis(int(node.number(1)), len(node.shape(0))), list(node.integers(2))
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = node.shape(0)[axis] - sum(size for size in sizes if size != -1)
    return node.move_by("Split", _list(sizes), results=len(sizes), axis=axis)


def slice_(node: Node) -> list[Value]:
    """`Slice` of opset8: start, stop, step, and axes."""
    node.count(4, 5)
    starts, stops, steps = (node.integers(index) for index in (1, 2, 3))
    axes = node.integers(4) if node.input_count == 5 else tuple(range(len(starts)))
    return _sliced(node, axes, starts, stops, steps)


def strided_slice(node: Node) -> list[Value]:
    """`StridedSlice`, with masks of axes that are whole, new or removed, and of an ellipsis."""
    node.count(3, 4)
    shape = node.shape(0)
    starts, stops = node.integers(1), node.integers(2)
    steps = node.integers(3) if node.input_count == 4 else (1,) * len(starts)
    count = max(len(starts), len(stops))
    whole, ended, new, removed, rest = (
        _mask(node, name, count)
        for name in ("begin_mask", "end_mask", "new_axis_mask", "shrink_axis_mask", "ellipsis_mask")
    )
    node.require(sum(rest) <= 1, "has several ellipses")
    kept = sum(1 for index in range(count) if not new[index] and not rest[index])
    axis, chosen, added, dropped = 0, [], [], []
    place = 0
    for index in range(count):
        if rest[index]:
            axis, place = axis + len(shape) - kept, place + len(shape) - kept
        elif new[index]:
            added.append(place)
            place += 1
        else:
            node.require(axis < len(shape), f"slices {count} axes of shape {list(shape)}")
            step = steps[index]
            first = (0 if step > 0 else -1) if whole[index] else starts[index]
            last = (_FAR if step > 0 else -_FAR) if ended[index] else stops[index]
            if removed[index]:
                first, step = starts[index], 1
                last = first + 1 if first != -1 else _FAR
                dropped.append(place)
            chosen.append((axis, first, last, step))
            axis, place = axis + 1, place + 1
    made = _sliced(node, *zip(*chosen, strict=True))[0] if chosen else node.value(0)
    return [_with_axes(node, made, added, dropped)]


def _with_axes(node: Node, value: Value, added: Sequence[int], dropped: Sequence[int]) -> Value:
    """Returns `value` with axes of length 1 added, and others removed; both are numbered before the removal."""
    if not added and not dropped:
        return value
    expr, type_ = (value.expr, value.type) if isinstance(value, Stored) else (value, None)
    if added:
        expr = node.step("Unsqueeze", expr, _list(added))
    if dropped:
        expr = node.step("Squeeze", expr, _list(dropped))
    return expr if type_ is None else Stored(expr, type_)


def _mask(node: Node, name: str, count: int) -> list[bool]:
    bits = node.attributes.integers(name, ())
    return [bool(bits[index]) if index < len(bits) else False for index in range(count)]


def _sliced(
    node: Node, axes: Sequence[int], starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]
) -> list[Value]:
    node.require(len(axes) == len(starts) == len(stops) == len(steps), "has lists of different lengths")
    node.require(0 not in steps, "has a step of 0")
    limited = [[max(-_FAR, min(_FAR, each)) for each in values] for values in (starts, stops)]
    return node.move_by("Slice", *map(_list, (*limited, axes, steps)))


def gather(node: Node) -> list[Value]:
    """`Gather`: negative indices count from the end in opset8."""
    node.count(3)
    batch = node.attributes.integer("batch_dims", 0)
    axis = node.axis(int(node.number(2)), len(node.shape(0)))
    indices, x = node.real(1), node.value(0)
    if batch:
        node.require_supported(batch % len(node.extents(indices)) == 0, "has batch_dims, which cannot be compiled")
    if isinstance(x, Compressed) and axis == 0 and not isinstance(indices, np.ndarray):
        return [_gathered_rows(node, x, indices)]
    return node.move_by("Gather", indices, axis=axis)


def _gathered_rows(node: Node, weights: Compressed, indices: Value) -> Value:
    """Returns rows of compressed weights. Only the rows that are read are decompressed."""
    rows = weights.shape[0]
    parts = (weights.scale, weights.zero_point)
    by_row = all(
        part is None or part.size == 1 or part.shape == (rows, *[1] * (len(weights.shape) - 1)) for part in parts
    )
    if not by_row or weights.data.shape != weights.shape or weights.scale is None:
        return node.step("Gather", node.real(0), indices, axis=0)

    def take_rows(part: Array) -> Value:
        return part.reshape(()) if part.size == 1 else node.step("Gather", part, indices, axis=0)

    made = node.step("Cast", node.step("Gather", weights.data, indices, axis=0), to=1)
    if weights.zero_point is not None:
        made = node.step("Sub", made, take_rows(weights.zero_point.astype(np.float32)))
    return node.step("Mul", made, take_rows(weights.scale))


def gather_elements(node: Node) -> list[Value]:
    node.count(2)
    return node.standard("GatherElements", node.real(0), node.real(1), axis=node.attributes.integer("axis"))


def gather_nd(node: Node) -> list[Value]:
    node.count(2)
    return node.standard("GatherND", node.real(0), node.real(1), batch_dims=node.attributes.integer("batch_dims", 0))


def tile(node: Node) -> list[Value]:
    node.count(2)
    shape, times = node.shape(0), node.integers(1)
    rank = max(len(shape), len(times))
    wide = _with_axes(
        node, node.value(0) if isinstance(node.value(0), Stored) else node.real(0), [*range(rank - len(shape))], []
    )
    padded = (1,) * (rank - len(times)) + tuple(times)
    if isinstance(wide, Stored):
        return [Stored(node.step("Tile", wide.expr, _list(padded)), wide.type)]
    return node.standard("Tile", wide, _list(padded))


def broadcast(node: Node) -> list[Value]:
    """`Broadcast`: `numpy` and `bidirectional` align the last axes, `explicit` names the axes."""
    node.count(2, 3)
    target, mode = list(node.integers(1)), node.attributes.text("mode", "numpy").lower()
    x = node.real(0)
    if mode == "explicit":
        node.require(node.input_count == 3, "has the mode explicit, but no axes")
        axes = node.integers(2)
        node.require(len(axes) == len(node.extents(x)), f"names {len(axes)} axes for {list(node.extents(x))}")
        spread = [1] * len(target)
        for axis, size in zip(axes, node.extents(x), strict=True):
            spread[node.axis(axis, len(target))] = size
        x = node.step("Reshape", x, _list(spread))
    node.require(mode in ("explicit", "numpy", "bidirectional"), f"has the unknown mode {mode[:20]!a}")
    return node.standard("Expand", x, _list(target))


def pad(node: Node) -> list[Value]:
    node.count(3, 4)
    begin, end = node.integers(1), node.integers(2)
    mode = node.attributes.text("pad_mode", "constant").lower()
    names = {"constant": "constant", "edge": "edge", "reflect": "reflect"}
    node.require_supported(mode in names, f"has the pad_mode {mode[:20]!a}, which cannot be compiled")
    value: Value = None
    if mode == "constant":
        value = node.real(3) if node.input_count == 4 else np.array(0, np.float32)
    return node.standard("Pad", node.real(0), _list([*begin, *end]), value, mode=mode)


def depth_to_space(node: Node) -> list[Value]:
    modes = {"blocks_first": "DCR", "depth_first": "CRD"}
    mode = node.attributes.text("mode", "blocks_first").lower()
    node.require(mode in modes, f"has the unknown mode {mode[:20]!a}")
    return node.move_by("DepthToSpace", blocksize=node.attributes.integer("block_size", 1), mode=modes[mode])


def space_to_depth(node: Node) -> list[Value]:
    mode = node.attributes.text("mode", "blocks_first").lower()
    node.require_supported(mode == "blocks_first", f"has the mode {mode[:20]!a}; only blocks_first can be compiled")
    return node.move_by("SpaceToDepth", blocksize=node.attributes.integer("block_size", 1))


def shuffle_channels(node: Node) -> list[Value]:
    """`ShuffleChannels`: channel i * group + g of the result is channel g * (C / group) + i of the input."""
    shape = node.shape(0)
    axis, groups = node.axis(node.attributes.integer("axis", 1), len(shape)), node.attributes.integer("group", 1)
    node.require(groups > 0 and shape[axis] % groups == 0, f"divides {shape[axis]} channels into {groups} groups")
    places = np.arange(shape[axis], dtype=np.int64).reshape(groups, -1).T.reshape(-1)
    return node.move_by("Gather", places, axis=axis)


def shape_of(node: Node) -> list[Value]:
    kind = node.attributes.text("output_type", "i64").lower()
    return [np.array(node.shape(0), np.int32 if kind == "i32" else np.int64)]


def range_(node: Node) -> list[Value]:
    node.count(3)
    return node.standard(
        "Range",
        *(
            node.real(index).reshape(()) if isinstance(node.real(index), np.ndarray) else node.real(index)
            for index in range(3)
        ),
    )


def reverse(node: Node) -> list[Value]:
    """`Reverse`: turns some axes round. They are given as indices, or as one flag for each axis (`mask`)."""
    node.count(2)
    shape, given = node.shape(0), node.constant(1).reshape(-1)
    mode = node.attributes.text("mode", "index").lower()
    axes = (
        [axis for axis, flag in enumerate(given) if flag] if mode == "mask" else node.axes(given.tolist(), len(shape))
    )
    if not axes:
        return [node.value(0)]
    return _sliced(node, axes, [-1] * len(axes), [-_FAR] * len(axes), [-1] * len(axes))


def identity(node: Node) -> list[Value]:
    return [node.value(0)]


def scatter(op_type: str) -> Convert:
    """Returns the rule of a scatter along an axis, which is the fourth input."""

    def convert(node: Node) -> list[Value]:
        node.count(4)
        axis = int(node.number(3))
        return node.standard(op_type, node.real(0), node.real(1), node.real(2), axis=axis)

    return convert


def scatter_nd(node: Node) -> list[Value]:
    node.count(3)
    return node.standard("ScatterND", *(node.real(index) for index in range(3)))


def one_hot(node: Node) -> list[Value]:
    """`OneHot`: indices, depth, the value of the index, the value of the others."""
    node.count(4)
    values = np.stack([node.constant(3).reshape(()), node.constant(2).reshape(())])
    return node.standard("OneHot", node.real(0), node.constant(1), values, axis=node.attributes.integer("axis", -1))


def _list(values: Sequence[int]) -> Array:
    return np.array(list(values), np.int64)


MOVEMENT: Mapping[str, Convert] = {
    "Broadcast": broadcast,
    "Concat": concat,
    "DepthToSpace": depth_to_space,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Identity": identity,
    "OneHot": one_hot,
    "Pad": pad,
    "Range": range_,
    "Reshape": reshape,
    "Reverse": reverse,
    "ScatterElementsUpdate": scatter("ScatterElements"),
    "ScatterNDUpdate": scatter_nd,
    "ShapeOf": shape_of,
    "ShuffleChannels": shuffle_channels,
    "Slice": slice_,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "Squeeze": squeeze,
    "StridedSlice": strided_slice,
    "Tile": tile,
    "Transpose": transpose,
    "Unsqueeze": unsqueeze,
    "VariadicSplit": variadic_split,
}
