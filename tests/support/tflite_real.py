"""TFLite models with a single operator on float32 values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from service.core.models.arrays import Array
from tests.support.tflite_builder import ModelBuilder, Quant

X = Quant(0.05, -3)
RNG = np.random.default_rng(4)
WEIGHTS = RNG.normal(0, 0.3, (5, 3, 3, 4)).astype(np.float32)
BIAS = RNG.normal(0, 1, 5).astype(np.float32)
CONV = schema.Conv2DOptionsT(strideH=2, strideW=1, fusedActivationFunction=1, dilationHFactor=1, dilationWFactor=2)
DEPTHWISE = schema.DepthwiseConv2DOptionsT(
    strideH=1, strideW=1, depthMultiplier=1, dilationHFactor=1, dilationWFactor=1
)
ROW = np.array([0.5, 1, -7, 0.3], np.float32)
AXES = np.array([1, 2], np.int32)
RESIZE = schema.ResizeBilinearOptionsT(halfPixelCenters=True)
KEEP, RELU6 = schema.ReducerOptionsT(keepDims=True), schema.AddOptionsT(fusedActivationFunction=3)
SHAPE = (1, 8, 8, 4)
POOL = schema.Pool2DOptionsT(strideH=2, strideW=2, filterHeight=3, filterWidth=3, fusedActivationFunction=1)

# name -> (constant operands, output shape, options)
OPERATORS: dict[str, tuple[Sequence[Array], Sequence[int], Any]] = {
    "ABS": ([], SHAPE, None),
    "ADD": ([ROW], SHAPE, RELU6),
    "AVERAGE_POOL_2D": ([], (1, 4, 4, 4), POOL),
    "BATCH_MATMUL": ([WEIGHTS[:4, :2, :2].reshape(1, 1, 16, 4)], (1, 8, 8, 16), schema.BatchMatMulOptionsT(adjY=True)),
    "CONV_2D": ([WEIGHTS, BIAS], (1, 4, 8, 5), CONV),
    "DEPTHWISE_CONV_2D": ([WEIGHTS[:1], BIAS[:4]], SHAPE, DEPTHWISE),
    "DIV": ([ROW], SHAPE, schema.DivOptionsT()),
    "EXP": ([], SHAPE, schema.ExpOptionsT()),
    "FULLY_CONNECTED": ([WEIGHTS.reshape(5, 36)[:, :32], BIAS], (8, 5), schema.FullyConnectedOptionsT()),
    "GELU": ([], SHAPE, schema.GeluOptionsT()),
    "HARD_SWISH": ([], SHAPE, None),
    "L2_NORMALIZATION": ([], SHAPE, schema.L2NormOptionsT()),
    "LEAKY_RELU": ([], SHAPE, schema.LeakyReluOptionsT(alpha=0.1)),
    "LOGISTIC": ([], SHAPE, None),
    "MAXIMUM": ([ROW], SHAPE, schema.MaximumMinimumOptionsT()),
    "MAX_POOL_2D": ([], (1, 4, 4, 4), POOL),
    "MEAN": ([AXES], (1, 1, 1, 4), KEEP),
    "MUL": ([ROW], SHAPE, schema.MulOptionsT()),
    "NEG": ([], SHAPE, None),
    "PRELU": ([ROW.reshape(1, 1, 4)], SHAPE, None),
    "REDUCE_MAX": ([AXES], (1, 1, 1, 4), KEEP),
    "RELU6": ([], SHAPE, None),
    "RESIZE_BILINEAR": (
        [np.array([16, 5], np.int32)],
        (1, 16, 5, 4),
        schema.ResizeBilinearOptionsT(halfPixelCenters=True),
    ),
    "SOFTMAX": ([], SHAPE, schema.SoftmaxOptionsT(beta=0.7)),
    "SQUARED_DIFFERENCE": ([ROW], SHAPE, schema.SquaredDifferenceOptionsT()),
    "SUB": ([ROW], SHAPE, schema.SubOptionsT()),
    "SUM": ([AXES], (1, 1, 1, 4), KEEP),
    "TANH": ([], SHAPE, None),
    "TRANSPOSE_CONV": (
        [np.array([1, 16, 8, 5], np.int32), WEIGHTS, BIAS],
        (1, 16, 8, 5),
        schema.TransposeConvOptionsT(strideH=2, strideW=1, fusedActivationFunction=1),
    ),
}


def network(name: str, *, stored: bool) -> bytes:
    """Returns the model of an operator: `x` -> `y`. If `stored` is true, `x` is int8, and a DEQUANTIZE converts it
    first.
    """
    constants, shape, options = OPERATORS[name]
    builder = ModelBuilder()
    x = real = builder.tensor("x", SHAPE, np.int8 if stored else np.float32, X if stored else None)
    if stored:
        real = builder.tensor("real", SHAPE, np.float32)
        builder.operator("DEQUANTIZE", [x], [real])
    y = builder.tensor("y", shape, np.float32)
    others = [builder.constant(f"c{index}", np.asarray(value)) for index, value in enumerate(constants)]
    first = 2 if name == "TRANSPOSE_CONV" else 0
    builder.operator(name, [*others[:first], real, *others[first:]], [y], options)
    return builder.build([x], [y])
