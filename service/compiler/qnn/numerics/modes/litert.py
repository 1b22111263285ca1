"""LiteRT (TFLite): its reference kernels, and its default delegate."""

from __future__ import annotations

from collections.abc import Mapping

from service.compiler.qnn.numerics.arithmetic import (
    COMPARISONS,
    FixedPointSub,
    PRelu,
    SharedShiftSub,
    SquaredDifference,
)
from service.compiler.qnn.numerics.dynamic import PadByZeroPoint
from service.compiler.qnn.numerics.elementwise import (
    FixedPointAdd,
    FixedPointMul,
    FloatMul,
    NarrowAdd,
    NarrowMul,
    SharedShiftAdd,
)
from service.compiler.qnn.numerics.formula import Formula
from service.compiler.qnn.numerics.functions.l2 import L2Normalize
from service.compiler.qnn.numerics.functions.softmax import FixedPointSoftmax, TableSoftmax
from service.compiler.qnn.numerics.functions.unary import (
    ELU,
    EVEN_ELU,
    EVEN_LOGISTIC,
    EVEN_SQUARE,
    EVEN_TANH,
    EXP,
    GELU,
    LOG,
    LOGISTIC,
    TANH,
    Absolute,
    Clip,
    HardSwish,
    LeakyRelu,
    ReciprocalSquareRoot,
    Relu,
    SharedMultiplierLeakyRelu,
    Square,
    SquareRoot,
)
from service.compiler.qnn.numerics.litert.detecting import Detect
from service.compiler.qnn.numerics.litert.division import FixedPointDivision
from service.compiler.qnn.numerics.litert.dynamic import Parameter, QuantizeByParameters, ScaleByParameters
from service.compiler.qnn.numerics.litert.int16 import (
    ByAccumulator,
    DoubleScale,
    InterpolatedLogistic,
    InterpolatedSoftmax,
    InterpolatedTanh,
    OptimizedDense,
    ReducedMultiplier,
)
from service.compiler.qnn.numerics.litert.interpolated import EXP16, GELU16, LOG16, RSQRT16
from service.compiler.qnn.numerics.litert.recurrent import LstmCell, LstmOutput, Rescale, TimeDense
from service.compiler.qnn.numerics.mode import EXACT, Mode
from service.compiler.qnn.numerics.onnxruntime.suppressing import Suppress
from service.compiler.qnn.numerics.pooling import AwaySum, CountedMean, FixedPointMean, FixedPointSum, FloatSum
from service.compiler.qnn.numerics.resize import ByStorage, ElevenBits, WideTenBits
from service.compiler.qnn.numerics.scaling.affine import Quantize
from service.compiler.qnn.numerics.scaling.requantize import (
    ChannelVectors,
    ElementVectors,
    FloatRequantize,
    HalvesUp,
    OneRounding,
    SharedMultiplier,
    TwoRoundings,
)
from service.compiler.qnn.numerics.unreproduced import Unreproduced
from service.core.builds.numerics import LITERT_REFERENCE, XNNPACK

# Operators for which LiteRT has only one kernel. The delegate leaves them to that kernel, or computes them in the same
# way as that kernel. Some operators are computed by the delegate in some nodes and by LiteRT's own kernels in others;
# LiteRT's own kernels have a separate formula (`importers.tflite.delegate`).
_SHARED: Mapping[str, Formula] = {
    **EXACT,
    **COMPARISONS,
    "abs": Absolute(),
    "detect": Detect(),
    "dynamic_pad": PadByZeroPoint(),
    "div": FixedPointDivision(),
    "exp": EXP,
    "gelu": GELU,
    "hard_swish": HardSwish(),
    "l2_normalize": L2Normalize(),
    "log": LOG,
    "lstm_cell": LstmCell(),
    "lstm_output": LstmOutput(),
    "prelu": PRelu(),
    "relu": Relu(),
    "rescale": Rescale(),
    "rsqrt": ReciprocalSquareRoot(),
    "sqrt": SquareRoot(),
    "suppress": Suppress(),
    "squared_difference": SquaredDifference(),
    "time_dense": TimeDense(),
    "add:int16": FixedPointAdd(left_shift=15),
    "conv2d+requantize:int16": ByAccumulator(),
    "conv2d_transpose+requantize:int16": ByAccumulator(),
    "sub:int16": FixedPointSub(left_shift=15),
    "exp:int16": EXP16,
    "gelu:int16": GELU16,
    "log:int16": LOG16,
    "rsqrt:int16": RSQRT16,
    "matmul+requantize:int16": ReducedMultiplier(),
    "resize_bilinear:int16": WideTenBits(),
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
        "matmul+requantize": TwoRoundings(),
        "clip": Clip(even=False),
        "elu": ELU,
        "logistic": LOGISTIC,
        "square": Square(),
        "tanh": TANH,
        "add": FixedPointAdd(),
        "resize_bilinear": ByStorage(),
        "sub": FixedPointSub(),
        "sum": FixedPointSum(),
        "sum:int16": Unreproduced("LiteRT's reference kernel of SUM, which reads 16-bit values as bytes", XNNPACK),
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
        "matmul+requantize": FloatRequantize(),
        "clip": Clip(even=True),
        "elu": EVEN_ELU,
        "logistic": EVEN_LOGISTIC,
        "square": EVEN_SQUARE,
        "tanh": EVEN_TANH,
        "add": SharedShiftAdd(),
        "resize_bilinear": ElevenBits(),
        "sub": SharedShiftSub(),
        "sum": FloatSum(),
        "sum:int16": AwaySum(),
        "mul": FloatMul(),
        "leaky_relu": SharedMultiplierLeakyRelu(),
        "mean": CountedMean(),
        "softmax": TableSoftmax(),
        "dynamic_parameter": Parameter(delegated=True),
        "dynamic_quantize": QuantizeByParameters(delegated=True),
        "dynamic_scale": ScaleByParameters(delegated=True),
        "requantize:reference": TwoRoundings(),
        "requantize:gemm": HalvesUp(),
        "requantize:channels": ChannelVectors(),
        "requantize:elements": ElementVectors(),
        "add:reference": NarrowAdd(),
        "elu:reference": ELU,
        "mean:optimized": Unreproduced(
            "the rounding of a mean whose axes are computed when the model runs", LITERT_REFERENCE
        ),
        "resize_bilinear:optimized": Unreproduced(
            "the rounding of a bilinear interpolation of uint8 whose size is computed when the model runs",
            LITERT_REFERENCE,
        ),
        "leaky_relu:reference": LeakyRelu(),
        "logistic:reference": LOGISTIC,
        "mul:reference": NarrowMul(),
        "resize_bilinear:reference": ByStorage(),
        "sub:reference": FixedPointSub(),
        "tanh:reference": TANH,
        "dense+requantize:int16": OptimizedDense(),
        "logistic:int16": InterpolatedLogistic(optimized=True),
        "tanh:int16": InterpolatedTanh(optimized=True),
    },
)
