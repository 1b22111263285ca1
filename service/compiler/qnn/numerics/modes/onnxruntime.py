"""ONNX Runtime on CPUs of x86-64 (MLAS)."""

from __future__ import annotations

from service.compiler.qnn.numerics.mode import EXACT, Mode
from service.compiler.qnn.numerics.onnxruntime import mlas, mlas_functions
from service.compiler.qnn.numerics.onnxruntime.suppressing import Suppress
from service.compiler.qnn.numerics.scaling.requantize import BiasedFloatRequantize, FloatRequantize
from service.core.builds.numerics import ONNXRUNTIME

CPU = Mode(
    ONNXRUNTIME,
    "ONNX Runtime 1.31.1, CPU, with the session option session.qdqisint8allowed=1",
    {
        **EXACT,
        "quantize": mlas.Quantize(),
        "requantize": mlas.Rescale(),
        "conv2d+requantize": BiasedFloatRequantize(),
        "conv2d_transpose+requantize": FloatRequantize(),
        "dense+requantize": FloatRequantize(),
        "matmul+requantize": FloatRequantize(),
        "add": mlas.Add(),
        "mul": mlas.Mul(),
        "avg_pool2d": mlas.WindowAverage(),
        "mean": mlas.GlobalAverage(),
        "concatenate": mlas.Concatenate(),
        "leaky_relu": mlas_functions.LEAKY_RELU,
        "logistic": mlas_functions.LOGISTIC,
        "softmax": mlas_functions.ScaledSoftmax(),
        "suppress": Suppress(),
    },
)
