"""The operators of random TFLite graphs that move elements: slices, permutations, concatenations and resizing."""

from __future__ import annotations

import numpy as np

from tests.fuzz.graphs.graph import need
from tests.fuzz.graphs.tflite_writer import TfliteWriter, compute, copy


def concatenation(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    axis = int(writer.rng.integers(len(shape)))
    fitting = [
        value
        for value in writer.values
        if len(writer.shape(value)) == len(shape)
        and all(
            a == b or position == axis for position, (a, b) in enumerate(zip(writer.shape(value), shape, strict=True))
        )
    ]
    parts = [
        fitting[int(position)] for position in writer.rng.integers(len(fitting), size=int(writer.rng.integers(1, 4)))
    ]
    options = {"table": "ConcatenationOptionsT", "axis": axis if writer.often(0.6) else axis - len(shape)}
    if writer.often(0.5):
        copy(writer, "CONCATENATION", parts, options)
    else:
        compute(writer, "CONCATENATION", parts, options)


def reshape(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    wanted = writer.choose((shape[0], -1), (-1,), (shape[0], 1, -1, shape[-1]), (*shape, 1)[:4])
    need(int(np.prod(shape)) % abs(int(np.prod(wanted))) == 0, "another number of elements")
    copy(writer, "RESHAPE", [x, writer.ints(*wanted)], {"table": "ReshapeOptionsT", "newShape": list(wanted)})


def transpose(writer: TfliteWriter) -> None:
    x = writer.any_value()
    order = writer.rng.permutation(len(writer.shape(x))).tolist()
    copy(writer, "TRANSPOSE", [x, writer.ints(*order)], {"table": "TransposeOptionsT"})


def pad(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    amounts = writer.constant(writer.rng.integers(0, 3, (len(shape), 2)).astype(np.int32))
    match int(writer.rng.integers(3)):
        case 0:
            copy(writer, "PAD", [x, amounts], {"table": "PadOptionsT"})
        case 1:
            value = writer.constant(writer.stored((1,), writer.dtype), quantization=writer.quantization(x))
            copy(writer, "PADV2", [x, amounts, value], {"table": "PadV2OptionsT"})
        case _:
            copy(writer, "MIRROR_PAD", [x, amounts], {"table": "MirrorPadOptionsT", "mode": int(writer.often(0.5))})


def slice_(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    begin = [int(writer.rng.integers(size)) for size in shape]
    if writer.often(0.5):
        size = [int(writer.rng.integers(1, total - first + 1)) for total, first in zip(shape, begin, strict=True)]
        copy(writer, "SLICE", [x, writer.ints(*begin), writer.ints(*size)], {"table": "SliceOptionsT"})
        return
    end = [int(writer.rng.integers(first + 1, total + 2)) for total, first in zip(shape, begin, strict=True)]
    strides = [int(writer.choose(1, 1, 2)) for _ in shape]
    options = {
        "table": "StridedSliceOptionsT",
        "beginMask": int(writer.choose(0, 1, 3)),
        "endMask": int(writer.choose(0, 2)),
    }
    if writer.often(0.2) and len(shape) > 1:
        options["shrinkAxisMask"] = 1 << int(writer.rng.integers(1, len(shape)))
    copy(writer, "STRIDED_SLICE", [x, writer.ints(*begin), writer.ints(*end), writer.ints(*strides)], options)


def split(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    axis = int(writer.rng.integers(len(shape)))
    need(shape[axis] > 1, "one element")
    name = writer.constant(np.array(axis, np.int32))
    if shape[axis] % 2 == 0 and writer.often(0.5):
        copy(writer, "SPLIT", [name, x], {"table": "SplitOptionsT", "numSplits": 2}, n=2, of=1)
    else:
        sizes = writer.ints(1, shape[axis] - 1)
        copy(writer, "SPLIT_V", [x, sizes, name], {"table": "SplitVOptionsT", "numSplits": 2}, n=2)


def resize(writer: TfliteWriter) -> None:
    x = writer.any_value()
    need(len(writer.shape(x)) == 4, "not an image")
    size = writer.ints(*writer.rng.integers(1, 16, 2).tolist())
    kind = str(writer.choose("Bilinear", "NearestNeighbor"))
    corners = writer.often(0.3)
    options = {"table": f"Resize{kind}OptionsT", "alignCorners": corners}
    options["halfPixelCenters"] = not corners and writer.often(0.5)
    copy(writer, "RESIZE_BILINEAR" if kind == "Bilinear" else "RESIZE_NEAREST_NEIGHBOR", [x, size], options)


def block(writer: TfliteWriter) -> None:
    x = writer.any_value()
    need(len(writer.shape(x)) == 4, "not an image")
    op_type, table = writer.choose(
        ("SPACE_TO_DEPTH", "SpaceToDepthOptionsT"), ("DEPTH_TO_SPACE", "DepthToSpaceOptionsT")
    )
    copy(writer, op_type, [x], {"table": table, "blockSize": 2})


def gather(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    axis = int(writer.rng.integers(len(shape)))
    indices = writer.constant(writer.rng.integers(0, shape[axis], int(writer.rng.integers(1, 6))).astype(np.int32))
    copy(writer, "GATHER", [x, indices], {"table": "GatherOptionsT", "axis": axis})


def pack(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    need(len(shape) < 4, "four axes already")
    axis = int(writer.rng.integers(len(shape) + 1))
    copy(writer, "PACK", [x, x], {"table": "PackOptionsT", "valuesCount": 2, "axis": axis})


def unpack(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    axis = int(writer.rng.integers(len(shape)))
    need(len(shape) > 1 and shape[axis] <= 4, "too many parts")
    options = {"table": "UnpackOptionsT", "num": shape[axis], "axis": axis}
    copy(writer, "UNPACK", [x], options, n=shape[axis])


def squeeze(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    if ones and len(shape) > 2:
        copy(writer, "SQUEEZE", [x], {"table": "SqueezeOptionsT", "squeezeDims": [writer.choose(*ones)]})
    else:
        need(len(shape) < 4, "four axes already")
        axis = writer.constant(np.array(int(writer.rng.integers(len(shape))), np.int32))
        copy(writer, "EXPAND_DIMS", [x, axis], {"table": "ExpandDimsOptionsT"})


def tile(writer: TfliteWriter) -> None:
    x = writer.any_value()
    repeats = [int(writer.choose(1, 1, 2)) for _ in writer.shape(x)]
    copy(writer, "TILE", [x, writer.ints(*repeats)], {"table": "TileOptionsT"})
