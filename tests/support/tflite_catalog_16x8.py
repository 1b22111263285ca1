"""Models of one operator with 16-bit activations (16x8 quantization), by name. See `tflite_catalog` for 8 bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.support import tflite_models as models
from tests.support.tflite_builder import Quant
from tests.support.tflite_catalog import DENSE, DEPTHWISE, PER_AXIS, PER_AXIS_3, WEIGHTS, X8, Y8
from tests.support.tflite_operator import Constant, End, ints, operator_model, unary_model

X16, Y16, FRACTION16 = Quant(3e-4), Quant(5e-4), Quant(1 / 32768)
BIAS64 = np.array([-100, 0, 5_000_000_000, 70_000], np.int64)
BIAS32 = np.array([-100, 0, 500, 70_000], np.int32)
_EVERY = (256, 256)


def _binary(name: str, out: Quant | None, options: object = None, version: int = 2) -> bytes:
    """Returns an operator of two tensors. Its output is bool if `out` is None."""
    y = End((40, 50), np.int16 if out else np.bool_, out)
    return operator_model(
        name,
        [End((40, 50), np.int16, X16), End((50,), np.int16, X16 if out in (None, X16) else Y16)],
        [y],
        options,
        version,
    )


def _reduction(name: str, y: Quant, axes: tuple[int, ...], version: int) -> bytes:
    shape = tuple(size for axis, size in enumerate((4, 50, 3, 6)) if axis not in axes)
    inputs: list[End | Constant] = [End((4, 50, 3, 6), np.int16, X16), ints(*axes)]
    return operator_model(name, inputs, [End(shape, np.int16, y)], schema.ReducerOptionsT(), version)


def _product(scale: float, *, adj_x: bool = False, adj_y: bool = False) -> bytes:
    x = End((2, 30, 9) if adj_x else (2, 9, 30), np.int16, X16)
    y = End((2, 7, 30) if adj_y else (2, 30, 7), np.int16, Y16)
    options = schema.BatchMatMulOptionsT(adjX=adj_x, adjY=adj_y)
    return operator_model("BATCH_MATMUL", [x, y], [End((2, 9, 7), np.int16, Quant(scale))], options, 3)


def _bilinear(**options: bool) -> bytes:
    inputs: list[End | Constant] = [End((2, 5, 7, 3), np.int16, X16), ints(11, 9)]
    y = End((2, 11, 9, 3), np.int16, X16)
    return operator_model("RESIZE_BILINEAR", inputs, [y], schema.ResizeBilinearOptionsT(**options), 4)


def _prelu(dtype: type) -> bytes:
    slopes = Constant(np.arange(-25, 25).reshape(1, 50).astype(dtype), Quant(0.01))
    return operator_model("PRELU", [End((40, 50), np.int16, X16), slopes], [End((40, 50), np.int16, Y16)])


# Operators that both modes compute.
MODELS: dict[str, Callable[[], bytes]] = {
    "conv 16x8": lambda: models.conv2d_model((1, 8, 8, 3), WEIGHTS, BIAS64, X16, PER_AXIS, Y16, dtype=np.int16),
    "conv 16x8 grouped strided relu6": lambda: models.conv2d_model(
        (2, 9, 8, 6), WEIGHTS, BIAS64, X16, Quant(0.02), Y16, dtype=np.int16, strides=(2, 1), activation="RELU6"
    ),
    "depthwise 16x8 dilated": lambda: models.depthwise_conv2d_model(
        (1, 8, 8, 2), DEPTHWISE, BIAS64, X16, PER_AXIS_3, Y16, dtype=np.int16, dilation=(2, 1)
    ),
    "transpose conv 16x8": lambda: models.transpose_conv_model(
        (1, 4, 5, 3), WEIGHTS, BIAS64, X16, PER_AXIS, Y16, output_size=(8, 9), strides=(2, 2), dtype=np.int16
    ),
    "fully connected 16x8": lambda: models.fully_connected_model(
        (40, 16), DENSE, BIAS64, X16, PER_AXIS, Y16, dtype=np.int16, activation="RELU"
    ),
    "fully connected 16x8 no bias, which would have 64 bits": lambda: models.fully_connected_model(
        (400, 16), DENSE, None, X16, PER_AXIS, Quant(1e-4), dtype=np.int16, bias_type=schema.TensorType.INT64
    ),
    "fully connected 16x8 no bias": lambda: models.fully_connected_model(
        (400, 16), DENSE, None, X16, Quant(0.02), Quant(1e-4), dtype=np.int16
    ),
    "add int16": lambda: models.binary_model("ADD", (1, 4, 4, 3), (3,), np.int16, X16, Y16, X16),
    "mul int16 relu6": lambda: models.binary_model(
        "MUL", (1, 64), (1, 64), np.int16, X16, Y16, Y16, activation="RELU6"
    ),
    "concatenation int16": lambda: models.concatenation_model(
        [(1, 2, 2, 3), (1, 2, 2, 1)], np.int16, [X16, X16], X16, axis=3
    ),
    "average pool int16 same": lambda: models.pool2d_model(
        "AVERAGE_POOL_2D", (1, 7, 7, 4), np.int16, X16, window=(3, 2), strides=(2, 2), padding="SAME"
    ),
    "max pool int16 relu": lambda: models.pool2d_model(
        "MAX_POOL_2D", (1, 6, 6, 4), np.int16, X16, window=(2, 2), activation="RELU"
    ),
    "mean int16": lambda: models.mean_model((1, 7, 7, 16), np.int16, X16, Y16, axes=(1, 2)),
    "softmax int16": lambda: models.softmax_model((4, 10), np.int16, Quant(3e-4), y_quant=FRACTION16),
    "softmax int16 beta": lambda: models.softmax_model((4, 300), np.int16, Quant(2e-3), beta=0.3, y_quant=FRACTION16),
    "logistic int16": lambda: models.activation_model("LOGISTIC", (256, 256), np.int16, Quant(3e-4), FRACTION16),
    "logistic int16, a power of two": lambda: models.activation_model(
        "LOGISTIC", (256, 256), np.int16, Quant(2**-13), FRACTION16
    ),
    "tanh int16": lambda: models.activation_model("TANH", (256, 256), np.int16, Quant(2e-4), FRACTION16),
    "leaky relu int16": lambda: unary_model(
        "LEAKY_RELU", (256, 256), np.int16, X16, Y16, schema.LeakyReluOptionsT(alpha=0.3)
    ),
    "relu int16": lambda: models.activation_model("RELU", (1, 256), np.int16, X16, Y16),
    "relu6 int16": lambda: models.activation_model("RELU6", (1, 256), np.int16, X16, Y16),
    "quantize float to int16": lambda: models.quantize_model((2, 300), np.float32, None, np.int16, X16),
    "quantize int16": lambda: models.quantize_model((2, 300), np.int16, X16, np.int16, Y16),
    "quantize int16 to int8": lambda: models.quantize_model((2, 300), np.int16, X16, np.int8, Y8),
    "quantize int8 to int16": lambda: models.quantize_model((2, 300), np.int8, X8, np.int16, X16),
    "dequantize int16": lambda: models.dequantize_model((2, 300), np.int16, X16),
    "pad int16": lambda: models.pad_model((1, 4, 4, 2), np.int16, X16, paddings=[(0, 0), (0, 1), (2, 0), (0, 0)]),
    "reshape int16": lambda: models.reshape_model((1, 4, 4, 2), (1, -1), np.int16, X16),
    "conv 16x8 with a bias of 32 bits": lambda: models.conv2d_model(
        (1, 8, 8, 3), WEIGHTS, BIAS32, X16, PER_AXIS, Quant(1e-3), dtype=np.int16
    ),
    "conv 16x8 grouped with a bias of 32 bits": lambda: models.conv2d_model(
        (1, 8, 8, 6), WEIGHTS, BIAS32, X16, Quant(0.02), Y16, dtype=np.int16, strides=(2, 1)
    ),
    "conv 16x8 whose sums wrap around": lambda: models.conv2d_model(
        (1, 8, 8, 60), np.full((4, 3, 3, 60), 127, np.int8), BIAS32, X16, PER_AXIS, Quant(1.0), dtype=np.int16
    ),
    "transpose conv 16x8 with a bias of 32 bits": lambda: models.transpose_conv_model(
        (1, 4, 5, 3), WEIGHTS, BIAS32, X16, PER_AXIS, Y16, output_size=(8, 9), strides=(2, 2), dtype=np.int16
    ),
    "fully connected 16x8 with a bias of 32 bits": lambda: models.fully_connected_model(
        (40, 16), DENSE, BIAS32, X16, PER_AXIS, Quant(1e-4), dtype=np.int16
    ),
    "quantize int16 to int32": lambda: models.quantize_model((2, 300), np.int16, X16, np.int32, Quant(1e-7)),
    "quantize int32 to int16": lambda: models.quantize_model((2, 300), np.int32, Quant(1e-8), np.int16, X16),
    "quantize int32 to int8": lambda: models.quantize_model((2, 300), np.int32, Quant(1e-8), np.int8, X8),
    "sub int16": lambda: _binary("SUB", Y16, schema.SubOptionsT(potScaleInt16=False), 5),
    "maximum int16": lambda: _binary("MAXIMUM", X16, schema.MaximumMinimumOptionsT()),
    **{
        f"{name.lower()} int16": partial(_binary, name, None)
        for name in ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")
    },
    "abs int16": lambda: unary_model("ABS", _EVERY, np.int16, X16, Y16),
    "exp int16": lambda: unary_model("EXP", _EVERY, np.int16, X16, Quant(1e-3)),
    "log int16": lambda: unary_model("LOG", _EVERY, np.int16, X16, Y16),
    "gelu int16": lambda: unary_model("GELU", _EVERY, np.int16, X16, Y16, schema.GeluOptionsT(approximate=True)),
    "prelu int16": lambda: _prelu(np.int8),
    "prelu int16 with slopes of 16 bits": lambda: _prelu(np.int16),
    "reduce max int16": lambda: _reduction("REDUCE_MAX", X16, (1,), 3),
    "reduce min int16": lambda: _reduction("REDUCE_MIN", X16, (0, 2), 3),
    "reduce prod int16": lambda: _reduction("REDUCE_PROD", Quant(1e-3), (2,), 2),
    "reduce prod int16 of two axes": lambda: _reduction("REDUCE_PROD", Y16, (2, 3), 2),
    "batch matmul int16": lambda: _product(0.1),
    "batch matmul int16 transposed": lambda: _product(1e-3, adj_x=True, adj_y=True),
    "resize bilinear int16": _bilinear,
    "resize bilinear int16 corners": lambda: _bilinear(alignCorners=True),
    "resize bilinear int16 centers": lambda: _bilinear(halfPixelCenters=True),
}
# Operators whose reference kernel LiteRT does not support for 16 bits, or for negative values.
SUM_INT16 = partial(_reduction, "SUM", Quant(2e-3), (1, 2), 2)


def positive_model(name: str) -> bytes:
    """Returns SQRT or RSQRT, which LiteRT computes only for values that are not negative."""
    return unary_model(name, (256, 128), np.int16, X16, Quant(1e-3))
