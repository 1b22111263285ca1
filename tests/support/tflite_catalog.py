"""Models of every operator in its common variants, by name. Tests of exactness and of the importer use them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import cycle

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from tests.support import tflite_models as models
from tests.support.tflite_arithmetic import ARITHMETIC, INT8_ONLY
from tests.support.tflite_builder import Quant
from tests.support.tflite_movement import MOVEMENTS
from tests.support.tflite_operator import Constant, End, operator_model, unary_model

X8, Y8 = Quant(0.05, -3), Quant(0.1, 7)
X_U8, Y_U8 = Quant(0.05, 120), Quant(0.1, 131)
PER_AXIS = Quant([0.01, 0.02, 0.03, 0.04])
PER_AXIS_3 = Quant([0.01, 0.02, 0.03, 0.04], axis=3)
WEIGHTS = np.arange(-54, 54, dtype=np.int8).reshape(4, 3, 3, 3)
DEPTHWISE = np.arange(-27, 9, dtype=np.int8).reshape(1, 3, 3, 4)
DENSE = np.arange(-32, 32, dtype=np.int8).reshape(4, 16)
BIAS = np.array([-100, 0, 50, 1000], np.int32)


def to_uint8(weights: npt.NDArray[np.int8]) -> npt.NDArray[np.uint8]:
    return (weights.astype(np.int32) + 128).astype(np.uint8)


WEIGHT_U8 = Quant(0.02, 128)
WIDE8, WIDE_U8 = Quant(0.8, -5), Quant(0.8, 131)  # wide enough for the sums of a convolution


def _movement(name: str, dtype: type) -> bytes:
    return MOVEMENTS[name](np.random.default_rng(3), dtype)


def _arithmetic(name: str) -> bytes:
    return ARITHMETIC[name](np.random.default_rng(3), np.int8 if name in INT8_ONLY else np.uint8)


MODELS: dict[str, Callable[[], bytes]] = {
    "conv int8": lambda: models.conv2d_model((1, 8, 8, 3), WEIGHTS, BIAS, X8, PER_AXIS, WIDE8),
    "conv int8 valid strided relu6": lambda: models.conv2d_model(
        (2, 9, 8, 3), WEIGHTS, BIAS, X8, PER_AXIS, Y8, strides=(2, 2), padding="VALID", activation="RELU6"
    ),
    "conv int8 same strided, odd padding after": lambda: models.conv2d_model(
        (1, 8, 7, 3), WEIGHTS, BIAS, X8, PER_AXIS, WIDE8, strides=(2, 2)
    ),
    "conv int8 dilated": lambda: models.conv2d_model(
        (1, 9, 9, 3), WEIGHTS, BIAS, X8, Quant(0.02), WIDE8, dilation=(2, 3)
    ),
    "conv uint8": lambda: models.conv2d_model(
        (1, 8, 8, 3), to_uint8(WEIGHTS), BIAS, X_U8, WEIGHT_U8, WIDE_U8, activation="RELU"
    ),
    "depthwise int8": lambda: models.depthwise_conv2d_model((1, 8, 8, 4), DEPTHWISE, BIAS, X8, PER_AXIS_3, WIDE8),
    "depthwise int8 multiplier": lambda: models.depthwise_conv2d_model(
        (1, 8, 8, 2), DEPTHWISE, BIAS, X8, PER_AXIS_3, Y8, strides=(2, 2), activation="RELU_N1_TO_1"
    ),
    "depthwise uint8 dilated": lambda: models.depthwise_conv2d_model(
        (1, 9, 9, 4), to_uint8(DEPTHWISE), BIAS, X_U8, WEIGHT_U8, WIDE_U8, dilation=(2, 2), padding="VALID"
    ),
    "conv int8 grouped": lambda: models.conv2d_model((1, 8, 8, 6), WEIGHTS, BIAS, X8, PER_AXIS, WIDE8),
    "transpose conv int8": lambda: models.transpose_conv_model(
        (1, 4, 5, 3), WEIGHTS, BIAS, X8, PER_AXIS, WIDE8, output_size=(8, 9), strides=(2, 2), activation="RELU"
    ),
    "transpose conv int8 no bias, beyond the last window": lambda: models.transpose_conv_model(
        (2, 4, 5, 3), WEIGHTS, None, X8, Quant(0.02), WIDE8, output_size=(10, 17), strides=(2, 3), padding="VALID"
    ),
    "transpose conv uint8": lambda: models.transpose_conv_model(
        (1, 4, 4, 3), to_uint8(WEIGHTS), BIAS, X_U8, WEIGHT_U8, WIDE_U8, output_size=(4, 4)
    ),
    "fully connected int8": lambda: models.fully_connected_model((2, 16), DENSE, BIAS, X8, Quant(0.02), WIDE8),
    "fully connected int8 per axis": lambda: models.fully_connected_model((2, 16), DENSE, BIAS, X8, PER_AXIS, WIDE8),
    "fully connected flattened": lambda: models.fully_connected_model((2, 4, 8), DENSE, None, X8, Quant(0.02), WIDE8),
    "fully connected keep dims": lambda: models.fully_connected_model(
        (2, 3, 16), DENSE, BIAS, X8, Quant(0.02), WIDE8, keep_num_dims=True, activation="RELU"
    ),
    "fully connected uint8": lambda: models.fully_connected_model(
        (2, 16), to_uint8(DENSE), BIAS, X_U8, WEIGHT_U8, WIDE_U8
    ),
    "fully connected int8, weights with a zero point": lambda: models.fully_connected_model(
        (2, 16), DENSE, BIAS, X8, Quant(0.02, 9), WIDE8
    ),
    "fully connected int8, computed weights": lambda: operator_model(
        "FULLY_CONNECTED",
        [End((5, 37), np.int8, X8), End((9, 37), np.int8, Quant(0.02))],
        [End((5, 9), np.int8, WIDE8)],
        schema.FullyConnectedOptionsT(),
    ),
    "div int8": lambda: operator_model(
        "DIV",
        [End((3, 256), np.int8, X8), Constant(np.arange(1, 101, 33, dtype=np.int8)[:3, None], Quant(0.1))],
        [End((3, 256), np.int8, Y8)],
        schema.DivOptionsT(),
        2,
    ),
    "reduce prod int8": lambda: operator_model(
        "REDUCE_PROD",
        [End((4, 3, 5), np.int8, X8), Constant(np.array([1], np.int32))],
        [End((4, 5), np.int8, Y8)],
        schema.ReducerOptionsT(),
        2,
    ),
    "add int8": lambda: models.binary_model("ADD", (1, 4, 4, 3), (1, 4, 4, 3), np.int8, X8, Y8, X8),
    "add broadcast": lambda: models.binary_model("ADD", (1, 4, 4, 3), (1, 1, 1, 3), np.int8, X8, Y8, X8),
    "add uint8 relu": lambda: models.binary_model(
        "ADD", (1, 32), (1, 32), np.uint8, X_U8, Y_U8, X_U8, activation="RELU"
    ),
    "mul constant": lambda: models.binary_model(
        "MUL", (1, 4, 4, 2), (2,), np.int8, X8, Quant(0.1), Y8, b_data=np.array([-5, 9], np.int8)
    ),
    "mul uint8": lambda: models.binary_model("MUL", (1, 32), (1, 32), np.uint8, X_U8, Y_U8, Y_U8),
    "concatenation int8": lambda: models.concatenation_model(
        [(1, 2, 2, 3), (1, 2, 2, 1)], np.int8, [X8, X8], X8, axis=3
    ),
    "concatenation uint8 rescaled": lambda: models.concatenation_model(
        [(1, 2), (3, 2), (2, 2)], np.uint8, [X_U8, Y_U8, X_U8], Y_U8, axis=0
    ),
    "concatenation negative axis": lambda: models.concatenation_model([(2, 3), (2, 1)], np.int8, [Y8, Y8], Y8, axis=-1),
    "average pool int8": lambda: models.pool2d_model("AVERAGE_POOL_2D", (1, 7, 7, 16), np.int8, X8, window=(7, 7)),
    "average pool uint8 same": lambda: models.pool2d_model(
        "AVERAGE_POOL_2D", (1, 7, 7, 4), np.uint8, X_U8, window=(3, 2), strides=(2, 2), padding="SAME"
    ),
    "max pool int8 same relu6": lambda: models.pool2d_model(
        "MAX_POOL_2D", (1, 7, 7, 4), np.int8, X8, window=(3, 3), strides=(2, 2), padding="SAME", activation="RELU6"
    ),
    "max pool uint8": lambda: models.pool2d_model("MAX_POOL_2D", (1, 6, 6, 4), np.uint8, X_U8, window=(2, 2)),
    "mean int8": lambda: models.mean_model((1, 7, 7, 16), np.int8, X8, Quant(0.02, 7), axes=(1, 2)),
    "mean uint8 keep dims": lambda: models.mean_model((2, 5, 3), np.uint8, X_U8, Y_U8, axes=(-1,), keep_dims=True),
    "softmax int8": lambda: models.softmax_model((4, 10), np.int8, X8),
    "softmax uint8 beta": lambda: models.softmax_model((2, 10), np.uint8, X_U8, beta=0.5),
    "quantize float": lambda: models.quantize_model((2, 30), np.float32, None, np.int8, Y8),
    "quantize uint8 to int8": lambda: models.quantize_model((2, 30), np.uint8, X_U8, np.int8, Y8),
    "quantize int8 to uint8": lambda: models.quantize_model((2, 30), np.int8, X8, np.uint8, Y_U8),
    "dequantize int8": lambda: models.dequantize_model((2, 30), np.int8, X8),
    "dequantize uint8": lambda: models.dequantize_model((2, 30), np.uint8, X_U8),
    "pad int8": lambda: models.pad_model((1, 4, 4, 2), np.int8, X8, paddings=[(0, 0), (0, 1), (2, 0), (0, 0)]),
    "pad uint8": lambda: models.pad_model((1, 4), np.uint8, X_U8, paddings=[(0, 0), (1, 1)]),
    "reshape": lambda: models.reshape_model((1, 4, 4, 2), (1, -1), np.int8, X8),
    "squeeze": lambda: models.squeeze_model((1, 1, 1, 4), np.int8, X8, axes=(1, 2)),
    "squeeze all": lambda: models.squeeze_model((1, 3, 1, 4), np.uint8, X_U8, axes=()),
    "relu int8": lambda: models.activation_model("RELU", (1, 64), np.int8, X8, Y8),
    "relu6 uint8": lambda: models.activation_model("RELU6", (1, 64), np.uint8, X_U8, Y_U8),
    "relu n1 to 1 int8": lambda: models.activation_model("RELU_N1_TO_1", (1, 64), np.int8, X8, Y8),
    "logistic int8": lambda: unary_model("LOGISTIC", (2, 40), np.int8, X8, Quant(1 / 256, -128)),
    "tanh uint8": lambda: unary_model("TANH", (2, 40), np.uint8, X_U8, Quant(1 / 128, 128)),
    "hard swish int8": lambda: unary_model("HARD_SWISH", (1, 4, 4, 3), np.int8, X8, Y8),
    "leaky relu int8": lambda: unary_model(
        "LEAKY_RELU", (1, 4, 4, 3), np.int8, X8, Y8, schema.LeakyReluOptionsT(alpha=0.1)
    ),
    **{
        f"{name} {dtype.__name__}": partial(_movement, name, dtype)
        for name, dtype in zip(MOVEMENTS, cycle([np.int8, np.uint8]), strict=False)
    },
    **{name: partial(_arithmetic, name) for name in ARITHMETIC},
}
