"""Models of one operator with 16-bit activations (16x8 quantization), by name. See `tflite_catalog` for 8 bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.support import tflite_models as models
from tests.support.tflite_builder import Quant
from tests.support.tflite_catalog import DENSE, DEPTHWISE, PER_AXIS, PER_AXIS_3, WEIGHTS, X8, Y8
from tests.support.tflite_operator import unary_model

X16, Y16, FRACTION16 = Quant(3e-4), Quant(5e-4), Quant(1 / 32768)
BIAS64 = np.array([-100, 0, 5_000_000_000, 70_000], np.int64)

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
}
