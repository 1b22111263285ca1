"""Random TFLite models of one data movement operator. The operator's name selects the model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.support.tflite_builder import Quant
from tests.support.tflite_operator import Constant, End, ints, operator_model

Random = np.random.Generator
Make = Callable[[Random, type], bytes]


def quant(dtype: type) -> Quant | None:
    return {"int8": Quant(0.05, -3), "uint8": Quant(0.1, 131)}.get(np.dtype(dtype).name)


def shape_of(rng: Random, rank: int | None = None, most: int = 5) -> tuple[int, ...]:
    rank = rank or int(rng.integers(1, 5))
    return tuple(int(size) for size in rng.integers(1, most + 1, rank))


def one(
    name: str,
    shape: tuple[int, ...],
    parameters: list[Constant],
    expected: tuple[int, ...],
    dtype: type,
    options: object = None,
) -> bytes:
    """Returns a model of an operator on one tensor. Constant operands follow the tensor."""
    ends = End(shape, dtype, quant(dtype)), End(expected, dtype, quant(dtype))
    return operator_model(name, [ends[0], *parameters], [ends[1]], options)


def _pad(rng: Random, dtype: type) -> bytes:
    shape = shape_of(rng)
    amounts = rng.integers(0, 3, (len(shape), 2)).astype(np.int32)
    padded = tuple(int(size + sum(row)) for size, row in zip(shape, amounts, strict=True))
    return one("PAD", shape, [Constant(amounts)], padded, dtype, schema.PadOptionsT())


def _pad_v2(rng: Random, dtype: type) -> bytes:
    shape = shape_of(rng)
    amounts = rng.integers(0, 3, (len(shape), 2)).astype(np.int32)
    padded = tuple(int(size + sum(row)) for size, row in zip(shape, amounts, strict=True))
    value = Constant(np.array(rng.integers(0, 100), dtype), quant(dtype))
    return one("PADV2", shape, [Constant(amounts), value], padded, dtype, schema.PadV2OptionsT())


def _mirror_pad(rng: Random, dtype: type) -> bytes:
    shape, mode = shape_of(rng), int(rng.integers(2))
    amounts = np.array([rng.integers(0, size + mode, 2) for size in shape], np.int32)
    padded = tuple(int(size + sum(row)) for size, row in zip(shape, amounts, strict=True))
    return one("MIRROR_PAD", shape, [Constant(amounts)], padded, dtype, schema.MirrorPadOptionsT(mode=mode))


def _slice(rng: Random, dtype: type) -> bytes:
    shape = shape_of(rng)
    begin = [int(rng.integers(size)) for size in shape]
    size = [int(rng.integers(1, total - first + 1)) for total, first in zip(shape, begin, strict=True)]
    named = [-1 if rng.integers(4) == 0 else count for count in size]
    made = [t - f if n == -1 else n for t, f, n in zip(shape, begin, named, strict=True)]
    return one("SLICE", shape, [ints(*begin), ints(*named)], tuple(made), dtype, schema.SliceOptionsT())


def _strided_slice(rng: Random, dtype: type) -> bytes:
    while True:
        shape = shape_of(rng)
        rank = int(rng.integers(1, len(shape) + 1))
        begin, end = ([int(rng.integers(-size, size + 1)) for size in shape[:rank]] for _ in range(2))
        strides = [int(rng.choice([1, 1, 2, 3, -1, -2])) for _ in range(rank)]
        masks = [int(rng.integers(1 << rank)) if rng.integers(2) else 0 for _ in range(3)]
        index: list[int | slice] = []
        for axis in range(rank):
            bit = 1 << axis
            if masks[2] & bit and 0 <= begin[axis] < shape[axis]:
                strides[axis], end[axis] = 1, begin[axis] + 1
                index.append(0 if masks[0] & bit else begin[axis])
                continue
            masks[2] &= ~bit
            index.append(
                slice(None if masks[0] & bit else begin[axis], None if masks[1] & bit else end[axis], strides[axis])
            )
        made = np.empty(shape)[tuple(index)]
        if made.size:
            break
    options = schema.StridedSliceOptionsT(beginMask=masks[0], endMask=masks[1], shrinkAxisMask=masks[2])
    return one("STRIDED_SLICE", shape, [ints(*begin), ints(*end), ints(*strides)], made.shape, dtype, options)


def _split(rng: Random, dtype: type) -> bytes:
    shape, count = list(shape_of(rng)), int(rng.integers(1, 4))
    axis = int(rng.integers(len(shape)))
    part = tuple(shape)
    shape[axis] *= count
    ends = [End(part, dtype, quant(dtype)) for _ in range(count)]
    named = Constant(np.array(axis - len(shape) if rng.integers(2) else axis, np.int32))
    inputs: list[End | Constant] = [named, End(shape, dtype, quant(dtype))]
    return operator_model("SPLIT", inputs, ends, schema.SplitOptionsT(numSplits=count))


def _split_v(rng: Random, dtype: type) -> bytes:
    shape, sizes = list(shape_of(rng)), rng.integers(1, 4, int(rng.integers(1, 4))).tolist()
    axis = int(rng.integers(len(shape)))
    shape[axis] = sum(sizes)
    ends = [End((*shape[:axis], size, *shape[axis + 1 :]), dtype, quant(dtype)) for size in sizes]
    named = list(sizes)
    if rng.integers(2):
        named[int(rng.integers(len(sizes)))] = -1
    inputs: list[End | Constant] = [End(shape, dtype, quant(dtype)), ints(*named), Constant(np.array(axis, np.int32))]
    return operator_model("SPLIT_V", inputs, ends, schema.SplitVOptionsT(numSplits=len(sizes)))


def _pack(rng: Random, dtype: type) -> bytes:
    shape, count = shape_of(rng, int(rng.integers(1, 4))), int(rng.integers(1, 4))
    axis = int(rng.integers(-len(shape) - 1, len(shape) + 1))
    made = np.stack([np.empty(shape)] * count, axis).shape
    options = schema.PackOptionsT(valuesCount=count, axis=axis)
    inputs = [End(shape, dtype, quant(dtype)) for _ in range(count)]
    return operator_model("PACK", inputs, [End(made, dtype, quant(dtype))], options)


def _unpack(rng: Random, dtype: type) -> bytes:
    shape = shape_of(rng, int(rng.integers(2, 5)), most=3)
    axis = int(rng.integers(-len(shape), len(shape)))
    rest = tuple(np.delete(shape, axis).tolist())
    options = schema.UnpackOptionsT(num=shape[axis], axis=axis)
    ends = [End(rest, dtype, quant(dtype)) for _ in range(shape[axis])]
    return operator_model("UNPACK", [End(shape, dtype, quant(dtype))], ends, options)


def _transpose(rng: Random, dtype: type) -> bytes:
    shape = shape_of(rng)
    axes = rng.permutation(len(shape)).tolist()
    return one(
        "TRANSPOSE", shape, [ints(*axes)], tuple(shape[axis] for axis in axes), dtype, schema.TransposeOptionsT()
    )


def _expand_dims(rng: Random, dtype: type) -> bytes:
    shape = shape_of(rng, int(rng.integers(1, 4)))
    axis = int(rng.integers(-len(shape) - 1, len(shape) + 1))
    made = np.expand_dims(np.empty(shape), axis).shape
    return one("EXPAND_DIMS", shape, [Constant(np.array(axis, np.int32))], made, dtype, schema.ExpandDimsOptionsT())


def _gather(rng: Random, dtype: type) -> bytes:
    shape = shape_of(rng)
    axis = int(rng.integers(len(shape)))
    indices = rng.integers(0, shape[axis], shape_of(rng, int(rng.integers(1, 3)))).astype(np.int32)
    made = np.take(np.empty(shape), indices, axis).shape
    return one("GATHER", shape, [Constant(indices)], made, dtype, schema.GatherOptionsT(axis=axis))


def _gather_nd(rng: Random, dtype: type) -> bytes:
    shape = shape_of(rng)
    depth, rows = int(rng.integers(1, len(shape) + 1)), shape_of(rng, int(rng.integers(1, 3)))
    indices = np.stack([rng.integers(0, size, rows) for size in shape[:depth]], -1).astype(np.int32)
    return one("GATHER_ND", shape, [Constant(indices)], (*rows, *shape[depth:]), dtype, schema.GatherNdOptionsT())


def _space_to_depth(rng: Random, dtype: type) -> bytes:
    n, h, w, c = shape_of(rng, 4, 3)
    block = int(rng.integers(1, 4))
    made = (n, h, w, c * block * block)
    return one(
        "SPACE_TO_DEPTH", (n, h * block, w * block, c), [], made, dtype, schema.SpaceToDepthOptionsT(blockSize=block)
    )


def _depth_to_space(rng: Random, dtype: type) -> bytes:
    n, h, w, c = shape_of(rng, 4, 3)
    block = int(rng.integers(1, 4))
    options = schema.DepthToSpaceOptionsT(blockSize=block)
    return one("DEPTH_TO_SPACE", (n, h, w, c * block * block), [], (n, h * block, w * block, c), dtype, options)


def _space_to_batch(rng: Random, dtype: type) -> bytes:
    n, h, w, c = shape_of(rng, 4, 3)
    block, pads = rng.integers(1, 4, 2).tolist(), rng.integers(0, 3, (2, 2)).astype(np.int32)
    after = [int(-(size + pads[i].sum()) % block[i]) for i, size in enumerate((h, w))]
    pads[:, 1] += np.array(after, np.int32)
    made = (n * block[0] * block[1], int(h + pads[0].sum()) // block[0], int(w + pads[1].sum()) // block[1], c)
    options = schema.SpaceToBatchNDOptionsT()
    return one("SPACE_TO_BATCH_ND", (n, h, w, c), [ints(*block), Constant(pads)], made, dtype, options)


def _batch_to_space(rng: Random, dtype: type) -> bytes:
    n, h, w, c = shape_of(rng, 4, 4)
    block = rng.integers(1, 4, 2).tolist()
    crops = np.array([rng.integers(0, (size * step + 1) // 2, 2) for size, step in zip((h, w), block, strict=True)])
    made = (n, int(h * block[0] - crops[0].sum()), int(w * block[1] - crops[1].sum()), c)
    parameters = [ints(*block), Constant(crops.astype(np.int32))]
    shape = (n * block[0] * block[1], h, w, c)
    return one("BATCH_TO_SPACE_ND", shape, parameters, made, dtype, schema.BatchToSpaceNDOptionsT())


def _tile(rng: Random, dtype: type) -> bytes:
    shape = shape_of(rng)
    times = rng.integers(1, 4, len(shape)).tolist()
    made = tuple(size * count for size, count in zip(shape, times, strict=True))
    return one("TILE", shape, [ints(*times)], made, dtype, schema.TileOptionsT())


def _broadcast_to(rng: Random, dtype: type) -> bytes:
    made = shape_of(rng)
    shape = tuple(1 if rng.integers(2) else size for size in made)
    return one("BROADCAST_TO", shape, [ints(*made)], made, dtype, schema.BroadcastToOptionsT())


def _resize_nearest(rng: Random, dtype: type) -> bytes:
    n, h, w, c = shape_of(rng, 4, 7)
    size = rng.integers(1, 12, 2).tolist()
    corners = bool(rng.integers(2))
    options = schema.ResizeNearestNeighborOptionsT(
        alignCorners=corners, halfPixelCenters=not corners and bool(rng.integers(2))
    )
    return one("RESIZE_NEAREST_NEIGHBOR", (n, h, w, c), [ints(*size)], (n, *size, c), dtype, options)


def _reverse(rng: Random, dtype: type) -> bytes:
    shape = shape_of(rng)
    return one("REVERSE_V2", shape, [ints(int(rng.integers(len(shape))))], shape, dtype, schema.ReverseV2OptionsT())


def _concatenation(rng: Random, dtype: type) -> bytes:
    shape = shape_of(rng)
    axis = int(rng.integers(-len(shape), len(shape)))
    sizes = rng.integers(1, 4, int(rng.integers(1, 5))).tolist()
    shapes = [tuple(size if i == axis % len(shape) else dim for i, dim in enumerate(shape)) for size in sizes]
    made = tuple(sum(sizes) if i == axis % len(shape) else dim for i, dim in enumerate(shape))
    inputs = [End(each, dtype, quant(dtype)) for each in shapes]
    options = schema.ConcatenationOptionsT(axis=axis)
    return operator_model("CONCATENATION", inputs, [End(made, dtype, quant(dtype))], options)


MOVEMENTS: dict[str, Make] = {
    "BATCH_TO_SPACE_ND": _batch_to_space,
    "BROADCAST_TO": _broadcast_to,
    "CONCATENATION": _concatenation,
    "DEPTH_TO_SPACE": _depth_to_space,
    "EXPAND_DIMS": _expand_dims,
    "GATHER": _gather,
    "GATHER_ND": _gather_nd,
    "MIRROR_PAD": _mirror_pad,
    "PACK": _pack,
    "PAD": _pad,
    "PADV2": _pad_v2,
    "RESIZE_NEAREST_NEIGHBOR": _resize_nearest,
    "REVERSE_V2": _reverse,
    "SLICE": _slice,
    "SPACE_TO_BATCH_ND": _space_to_batch,
    "SPACE_TO_DEPTH": _space_to_depth,
    "SPLIT": _split,
    "SPLIT_V": _split_v,
    "STRIDED_SLICE": _strided_slice,
    "TILE": _tile,
    "TRANSPOSE": _transpose,
    "UNPACK": _unpack,
}
