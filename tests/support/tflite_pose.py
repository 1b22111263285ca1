"""A small pose network with the last layers of MoveNet SinglePose.

It computes the position of the largest score of each key point in integers, and gathers an offset at that position.
"""

from __future__ import annotations

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.support.tflite_builder import ModelBuilder, Quant

SIDE, POINTS = 12, 5
_INT32 = schema.TensorType.INT32


def pose_model(seed: int = 0, *, real_scores: bool = False) -> bytes:
    """Returns the network: `[1, 12, 12, 3]` uint8 -> `[1, 1, 5, 3]` float32. The output contains y, x and the score of
    each point.

    Args:
        real_scores: true to search the largest score among real values.
    """
    rng = np.random.default_rng(seed)
    builder = ModelBuilder()
    cells = SIDE * SIDE
    image = builder.tensor("image", (1, SIDE, SIDE, 3), np.uint8)
    real = builder.tensor("real", (1, SIDE, SIDE, 3), np.float32)
    builder.operator("CAST", [image], [real], schema.CastOptionsT(outDataType=schema.TensorType.FLOAT32))
    stored = builder.tensor("stored", (1, SIDE, SIDE, 3), np.int8, Quant(1.0, -128))
    builder.operator("QUANTIZE", [real], [stored])
    scores = _head(builder, rng, stored, "scores", POINTS)
    offsets = _head(builder, rng, stored, "offsets", 2 * POINTS)

    heat = builder.tensor("heat", (1, SIDE, SIDE, POINTS), np.int8, Quant(1 / 256, -128))
    builder.operator("LOGISTIC", [scores], [heat])
    rows = builder.tensor("rows", (cells, POINTS), np.int8, Quant(1 / 256, -128))
    _reshape(builder, heat, rows, (cells, POINTS))
    probabilities = builder.tensor("probabilities", (cells, POINTS), np.float32)
    builder.operator("DEQUANTIZE", [rows], [probabilities])
    position = builder.tensor("place", (POINTS,), np.int32)
    searched = probabilities if real_scores else rows
    axis = builder.constant("axis", np.array(0, np.int32))
    builder.operator("ARG_MAX", [searched, axis], [position], schema.ArgMaxOptionsT(outputType=_INT32))

    side = builder.constant("side", np.array(SIDE, np.int32))
    y, product, x = (builder.tensor(name, (POINTS,), np.int32) for name in ("y", "product", "x"))
    builder.operator("FLOOR_DIV", [position, side], [y], schema.FloorDivOptionsT())
    builder.operator("MUL", [y, side], [product], schema.MulOptionsT())
    builder.operator("SUB", [position, product], [x], schema.SubOptionsT())

    points = builder.constant("points", np.arange(POINTS, dtype=np.int32))
    indices = builder.tensor("indices", (POINTS, 2), np.int32)
    builder.operator("PACK", [position, points], [indices], schema.PackOptionsT(valuesCount=2, axis=1))
    score = builder.tensor("score", (POINTS,), np.float32)
    builder.operator("GATHER_ND", [probabilities, indices], [score], schema.GatherNdOptionsT())

    pairs = builder.tensor("pairs", (SIDE, SIDE, POINTS, 2), np.int8, Quant(0.02, 3))
    _reshape(builder, offsets, pairs, (SIDE, SIDE, POINTS, 2))
    where = builder.tensor("where", (POINTS, 3), np.int32)
    builder.operator("PACK", [y, x, points], [where], schema.PackOptionsT(valuesCount=3, axis=1))
    moved = builder.tensor("moved", (POINTS, 2), np.int8, Quant(0.02, 3))
    builder.operator("GATHER_ND", [pairs, where], [moved], schema.GatherNdOptionsT())
    shift = builder.tensor("shift", (POINTS, 2), np.float32)
    builder.operator("DEQUANTIZE", [moved], [shift])
    down, right = (builder.tensor(name, (POINTS,), np.float32) for name in ("down", "right"))
    builder.operator("UNPACK", [shift], [down, right], schema.UnpackOptionsT(num=2, axis=1))

    step = builder.constant("step", np.array(1 / SIDE, np.float32))
    ends = []
    for name, index, offset in (("y", y, down), ("x", x, right)):
        whole, total, scaled = (
            builder.tensor(f"{name}_{part}", (POINTS,), np.float32) for part in ("real", "total", "scaled")
        )
        builder.operator("CAST", [index], [whole], schema.CastOptionsT(outDataType=schema.TensorType.FLOAT32))
        builder.operator("ADD", [whole, offset], [total], schema.AddOptionsT())
        builder.operator("MUL", [total, step], [scaled], schema.MulOptionsT())
        ends.append(scaled)
    packed = builder.tensor("packed", (POINTS, 3), np.float32)
    builder.operator("PACK", [*ends, score], [packed], schema.PackOptionsT(valuesCount=3, axis=1))
    output = builder.tensor("key_points", (1, 1, POINTS, 3), np.float32)
    _reshape(builder, packed, output, (1, 1, POINTS, 3))
    return builder.build([image], [output])


def _head(builder: ModelBuilder, rng: np.random.Generator, x: int, name: str, channels: int) -> int:
    """Adds a convolution of the image, and returns its output."""
    weights = rng.integers(-127, 128, (channels, 3, 3, 3)).astype(np.int8)
    weight = builder.constant(f"{name}_weights", weights, Quant([5e-5] * channels))
    bias = builder.constant(f"{name}_bias", rng.integers(-3000, 3000, channels).astype(np.int32))
    made = builder.tensor(name, (1, SIDE, SIDE, channels), np.int8, Quant(0.02 if channels > POINTS else 0.05, 3))
    options = schema.Conv2DOptionsT(strideH=1, strideW=1, dilationHFactor=1, dilationWFactor=1)
    builder.operator("CONV_2D", [x, weight, bias], [made], options)
    return made


def _reshape(builder: ModelBuilder, x: int, made: int, shape: tuple[int, ...]) -> None:
    name = builder.graph.tensors[made].name
    builder.operator("RESHAPE", [x, builder.constant(f"{name}_shape", np.array(shape, np.int32))], [made])
