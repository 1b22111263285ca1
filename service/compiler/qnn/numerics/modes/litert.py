"""LiteRT (TFLite): its reference kernels, and its default delegate."""

from __future__ import annotations

from collections.abc import Mapping

from service.compiler.qnn.numerics.affine import Quantize
from service.compiler.qnn.numerics.arithmetic import (
    COMPARISONS,
    FixedPointSub,
    PRelu,
    SharedShiftSub,
    SquaredDifference,
)
from service.compiler.qnn.numerics.detecting import Detect
from service.compiler.qnn.numerics.division import FixedPointDivision
from service.compiler.qnn.numerics.dynamic import PadByZeroPoint
from service.compiler.qnn.numerics.dynamic_litert import Parameter, QuantizeByParameters, ScaleByParameters
from service.compiler.qnn.numerics.elementwise import FixedPointAdd, FixedPointMul, FloatMul, SharedShiftAdd
from service.compiler.qnn.numerics.formula import Formula
from service.compiler.qnn.numerics.int16 import (
    DoubleScale,
    InterpolatedLogistic,
    InterpolatedSoftmax,
    InterpolatedTanh,
    OptimizedDense,
    ReducedMultiplier,
)
from service.compiler.qnn.numerics.l2 import L2Normalize
from service.compiler.qnn.numerics.mode import EXACT, Mode
from service.compiler.qnn.numerics.pooling import FixedPointMean, FixedPointSum, FloatMean, FloatSum
from service.compiler.qnn.numerics.recurrent import LstmCell, LstmOutput, Rescale, TimeDense
from service.compiler.qnn.numerics.requantize import FloatRequantize, OneRounding, SharedMultiplier, TwoRoundings
from service.compiler.qnn.numerics.resize import ByStorage, ElevenBits
from service.compiler.qnn.numerics.softmax import FixedPointSoftmax, TableSoftmax
from service.compiler.qnn.numerics.unary import (
    ELU,
    EXP,
    GELU,
    LOG,
    LOGISTIC,
    TANH,
    Absolute,
    HardSwish,
    LeakyRelu,
    ReciprocalSquareRoot,
    Relu,
    SharedMultiplierLeakyRelu,
    SquareRoot,
)
from service.core.numerics import LITERT_REFERENCE, XNNPACK

# The delegate leaves these to LiteRT's own kernels, of which there is one each, or computes the same itself.
_SHARED: Mapping[str, Formula] = {
    **EXACT,
    **COMPARISONS,
    "abs": Absolute(),
    "detect": Detect(),
    "dynamic_pad": PadByZeroPoint(),
    "div": FixedPointDivision(),
    "elu": ELU,
    "exp": EXP,
    "gelu": GELU,
    "hard_swish": HardSwish(),
    "l2_normalize": L2Normalize(),
    "log": LOG,
    "logistic": LOGISTIC,
    "lstm_cell": LstmCell(),
    "lstm_output": LstmOutput(),
    "matmul+requantize": TwoRoundings(),
    "prelu": PRelu(),
    "relu": Relu(),
    "rescale": Rescale(),
    "rsqrt": ReciprocalSquareRoot(),
    "sqrt": SquareRoot(),
    "squared_difference": SquaredDifference(),
    "tanh": TANH,
    "time_dense": TimeDense(),
    "add:int16": FixedPointAdd(left_shift=15),
    "conv2d+requantize:int16": ReducedMultiplier(),
    "conv2d_transpose+requantize:int16": ReducedMultiplier(),
    "leaky_relu:int16": LeakyRelu(),
    "mean:int16": FixedPointMean(),
    "mul:int16": FixedPointMul(),
    "requantize:int16": TwoRoundings(),
    "softmax:int16": InterpolatedSoftmax(),
}

REFERENCE = Mode(
    LITERT_REFERENCE,
    "LiteRT 2.3.0, reference kernels (BUILTIN_REF)",
    {
        **_SHARED,
        "quantize": Quantize(reciprocal=False, overflows=True),
        "requantize": TwoRoundings(),
        "conv2d+requantize": TwoRoundings(),
        "conv2d_transpose+requantize": TwoRoundings(),
        "dense+requantize": OneRounding(),
        "add": FixedPointAdd(),
        "resize_bilinear": ByStorage(),
        "sub": FixedPointSub(),
        "sum": FixedPointSum(),
        "mul": FixedPointMul(),
        "leaky_relu": LeakyRelu(),
        "mean": FixedPointMean(),
        "softmax": FixedPointSoftmax(),
        "dynamic_parameter": Parameter(delegated=False),
        "dynamic_quantize": QuantizeByParameters(delegated=False),
        "dynamic_scale": ScaleByParameters(delegated=False),
        "dense+requantize:int16": DoubleScale(),
        "logistic:int16": InterpolatedLogistic(optimized=False),
        "tanh:int16": InterpolatedTanh(optimized=False),
    },
)

DELEGATE = Mode(
    XNNPACK,
    "LiteRT 2.3.0, default delegate (XNNPACK)",
    {
        **_SHARED,
        "quantize": Quantize(reciprocal=True),
        "quantize:int16": Quantize(reciprocal=True, overflows=True),
        "requantize": SharedMultiplier(),
        "conv2d+requantize": FloatRequantize(),
        "conv2d_transpose+requantize": FloatRequantize(),
        "dense+requantize": FloatRequantize(),
        "add": SharedShiftAdd(),
        "resize_bilinear": ElevenBits(),
        "sub": SharedShiftSub(),
        "sum": FloatSum(),
        "mul": FloatMul(),
        "leaky_relu": SharedMultiplierLeakyRelu(),
        "mean": FloatMean(),
        "softmax": TableSoftmax(),
        "dynamic_parameter": Parameter(delegated=True),
        "dynamic_quantize": QuantizeByParameters(delegated=True),
        "dynamic_scale": ScaleByParameters(delegated=True),
        "dense+requantize:int16": OptimizedDense(),
        "logistic:int16": InterpolatedLogistic(optimized=True),
        "tanh:int16": InterpolatedTanh(optimized=True),
    },
)
