"""The operators of random ONNX graphs that move elements: slices, permutations, concatenations and resizing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.fuzz.graphs.graph import OMITTED, need
from tests.fuzz.graphs.onnx_writer import OnnxWriter, Value


def _copy(
    writer: OnnxWriter, x: Value, op_type: str, operands: Sequence[str], options: dict[str, Any], n: int = 1
) -> None:
    """Adds an operator that moves stored values; or one that moves real values between conversions of one type."""
    if writer.often(0.2):
        for name in writer.node(op_type, [x.name, *operands], options, n=n):
            writer.values.append(Value(name, *x.parameters))
        return
    for real in writer.node(op_type, [writer.dequantize(x), *operands], options, n=n):
        writer.quantize(real, writer.dtype(x), x if writer.often(0.85) else None)


def concat(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    axis = int(writer.rng.integers(len(shape)))
    fitting = [
        value
        for value in writer.values
        if len(writer.shape(value.name)) == len(shape)
        and all(
            a == b or position == axis
            for position, (a, b) in enumerate(zip(writer.shape(value.name), shape, strict=True))
        )
    ]
    parts = [
        fitting[int(position)] for position in writer.rng.integers(len(fitting), size=int(writer.rng.integers(1, 4)))
    ]
    operands = [writer.dequantize(part) for part in parts]
    if writer.often(0.15):
        operands.append(_second_of_shape(writer, x, shape))
    (real,) = writer.node("Concat", operands, {"axis": axis if writer.often(0.6) else axis - len(shape)})
    writer.quantize(real, writer.dtype(x), x if writer.often(0.5) else None)


def _second_of_shape(writer: OnnxWriter, x: Value, shape: tuple[int, ...]) -> str:
    stored = writer.constant(writer.stored(shape, writer.dtype(x)))
    return writer.node("DequantizeLinear", [stored, *x.parameters])[0]


def reshape(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = list(writer.shape(x.name))
    match int(writer.rng.integers(3)):
        case 0:
            wanted = [shape[0], -1]
        case 1 if len(shape) == 4:
            wanted = [shape[0], shape[1], -1]
        case _:
            wanted = [0, -1] if len(shape) != 2 else [shape[0], 1, 1, shape[1]]
    _copy(writer, x, "Reshape", [writer.constant(wanted, "int64")], {})


def transpose(writer: OnnxWriter) -> None:
    x = writer.any_value()
    order = writer.rng.permutation(len(writer.shape(x.name))).tolist()
    _copy(writer, x, "Transpose", [], {"perm": order})


def slice_(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    axis = int(writer.rng.integers(len(shape)))
    start, step = int(writer.rng.integers(shape[axis])), int(writer.choose(1, 1, 2, -1))
    end = int(writer.rng.integers(start + 1, shape[axis] + 2)) if step > 0 else -(1 << 40)
    operands = [writer.constant([value], "int64") for value in (start, end, axis, step)]
    _copy(writer, x, "Slice", operands, {})


def split(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    axis = int(writer.rng.integers(len(shape)))
    need(shape[axis] > 1, "one element")
    first = int(writer.rng.integers(1, shape[axis]))
    _copy(writer, x, "Split", [writer.constant([first, shape[axis] - first], "int64")], {"axis": axis}, n=2)


def pad(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    mode = str(writer.choose("constant", "constant", "reflect", "edge"))
    pads = [int(writer.rng.integers(0, min(3, size))) if writer.often(0.5) else 0 for size in (*shape, *shape)]
    _copy(writer, x, "Pad", [writer.constant(pads, "int64")], {"mode": mode})


def resize(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    need(len(shape) == 4, "not an image")
    mode = str(writer.choose("nearest", "linear", "cubic"))
    options = {
        "mode": mode,
        "coordinate_transformation_mode": str(
            writer.choose("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
        ),
    }
    if mode == "nearest":
        options["nearest_mode"] = str(writer.choose("round_prefer_floor", "floor", "ceil"))
    sizes = [*shape[:2], *writer.rng.integers(1, 16, 2).tolist()]
    operands = [OMITTED, OMITTED, writer.constant(sizes, "int64")]
    if writer.often(0.5):
        factors = [1.0, 1.0, *writer.rng.choice([0.5, 1.5, 2.0, 3.0], 2).tolist()]
        operands = [OMITTED, writer.constant(factors, "float32")]
    (real,) = writer.node("Resize", [writer.dequantize(x), *operands], options)
    writer.quantize(real, writer.dtype(x), x if writer.often(0.7) else None)


def squeeze(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    ones = [axis for axis, size in enumerate(shape) if size == 1 and axis > 0]
    if ones and len(shape) > 2:
        _copy(writer, x, "Squeeze", [writer.constant([writer.choose(*ones)], "int64")], {})
    else:
        need(len(shape) < 4, "four axes already")
        _copy(writer, x, "Unsqueeze", [writer.constant([int(writer.rng.integers(1, len(shape) + 1))], "int64")], {})


def depth_to_space(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    need(len(shape) == 4, "not an image")
    if shape[1] % 4 == 0 and writer.often(0.6):
        _copy(writer, x, "DepthToSpace", [], {"blocksize": 2, "mode": str(writer.choose("DCR", "CRD"))})
    else:
        need(shape[2] % 2 == 0 and shape[3] % 2 == 0, "odd sides")
        _copy(writer, x, "SpaceToDepth", [], {"blocksize": 2})


def gather(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    axis = int(writer.rng.integers(len(shape)))
    indices = writer.rng.integers(-shape[axis], shape[axis], int(writer.rng.integers(1, 6)))
    _copy(writer, x, "Gather", [writer.constant(indices, str(writer.choose("int64", "int32")))], {"axis": axis})
