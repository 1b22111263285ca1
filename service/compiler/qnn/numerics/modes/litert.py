"""LiteRT (TFLite): its reference kernels, and its default delegate."""

from __future__ import annotations

from service.compiler.qnn.numerics.affine import Quantize
from service.compiler.qnn.numerics.elementwise import FixedPointAdd, FixedPointMul, FloatMul, SharedShiftAdd
from service.compiler.qnn.numerics.mode import EXACT, Mode
from service.compiler.qnn.numerics.pooling import FixedPointMean, FloatMean
from service.compiler.qnn.numerics.requantize import FloatRequantize, OneRounding, SharedMultiplier, TwoRoundings
from service.compiler.qnn.numerics.softmax import FixedPointSoftmax, TableSoftmax
from service.core.numerics import LITERT_REFERENCE, XNNPACK

REFERENCE = Mode(
    LITERT_REFERENCE,
    "LiteRT 2.3.0, reference kernels (BUILTIN_REF)",
    {
        **EXACT,
        "quantize": Quantize(reciprocal=False),
        "requantize": TwoRoundings(),
        "conv2d+requantize": TwoRoundings(),
        "conv2d_transpose+requantize": TwoRoundings(),
        "dense+requantize": OneRounding(),
        "add": FixedPointAdd(),
        "mul": FixedPointMul(),
        "mean": FixedPointMean(),
        "softmax": FixedPointSoftmax(),
    },
)

DELEGATE = Mode(
    XNNPACK,
    "LiteRT 2.3.0, default delegate (XNNPACK)",
    {
        **EXACT,
        "quantize": Quantize(reciprocal=True),
        "requantize": SharedMultiplier(),
        "conv2d+requantize": FloatRequantize(),
        "conv2d_transpose+requantize": FloatRequantize(),
        "dense+requantize": FloatRequantize(),
        "add": SharedShiftAdd(),
        "mul": FloatMul(),
        "mean": FloatMean(),
        "softmax": TableSoftmax(),
    },
)
