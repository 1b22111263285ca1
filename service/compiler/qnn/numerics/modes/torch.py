"""PyTorch: its quantized operators with each of its engines for x86, and its exported programs.

An engine computes convolutions and linear layers; everything else is computed by ATen itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from service.compiler.qnn.numerics import onednn
from service.compiler.qnn.numerics.elementwise import FloatMul
from service.compiler.qnn.numerics.formula import Formula
from service.compiler.qnn.numerics.mode import EXACT, Mode
from service.compiler.qnn.numerics.onnxruntime import mlas
from service.compiler.qnn.numerics.pooling import FloatMean
from service.compiler.qnn.numerics.torch import aten, aten_unary, decomposed, dynamic, qnnpack
from service.core.builds.numerics import FBGEMM, ONEDNN, PT2E, QNNPACK, TORCH_X86

_ATEN: Mapping[str, Formula] = {
    **EXACT,
    "quantize": aten.FusedQuantize(),
    "requantize": aten.Rescale(),
    "add": aten.FloatAdd(),
    "mul": FloatMul(),
    "avg_pool2d": aten.EvenAverage(),
    "avg_pool2d:adaptive": aten.AdaptiveAverage(),
    "concatenate": aten.FloatConcatenate(),
    "mean": FloatMean(),
    "elu": aten_unary.ELU,
    "hard_sigmoid": aten_unary.HARD_SIGMOID,
    "hard_swish": aten_unary.HARD_SWISH,
    "leaky_relu": aten_unary.LEAKY_RELU,
    "logistic": aten_unary.LOGISTIC,
    "tanh": aten_unary.TANH,
}

_DYNAMIC_BY_FBGEMM: Mapping[str, Formula] = {
    "dynamic_parameter": dynamic.Parameter(reduces=True),
    "dynamic_quantize": dynamic.QuantizeByParameters(),
    "dynamic_scale": dynamic.ScaleByParameters(fused=True),
}

ENGINE_FBGEMM = Mode(
    FBGEMM,
    "PyTorch 2.13.0, engine fbgemm",
    {
        **_ATEN,
        **_DYNAMIC_BY_FBGEMM,
        "conv2d+requantize": aten.FbgemmRequantize(),
        "conv2d_transpose+requantize": aten.FbgemmRequantize(),
        "dense+requantize": aten.FbgemmRequantize(),
    },
)

ENGINE_ONEDNN = Mode(
    ONEDNN,
    "PyTorch 2.13.0, engine onednn, on AVX512-VNNI",
    {
        **_ATEN,
        "conv2d+requantize": aten.OneDnnRequantize(),
        "conv2d_transpose+requantize": aten.OneDnnRequantize(),
        "dense+requantize": aten.OneDnnRequantize(),
    },
)

ENGINE_X86 = Mode(
    TORCH_X86,
    "PyTorch 2.13.0, engine x86, on AVX512-VNNI",
    {
        **_ATEN,
        **_DYNAMIC_BY_FBGEMM,
        "conv2d+requantize": aten.ByGroups(),
        "conv2d_transpose+requantize": aten.FbgemmRequantize(),
        "dense+requantize": aten.FbgemmRequantize(),
    },
)

ENGINE_QNNPACK = Mode(
    QNNPACK,
    "PyTorch 2.13.0, engine qnnpack, on x86-64",
    {
        **_ATEN,
        "conv2d+requantize": qnnpack.IntegerBias(),
        "conv2d_transpose+requantize": qnnpack.IntegerBias(),
        "dense+requantize": qnnpack.IntegerBias(),
        "add": qnnpack.SharedShiftSum(),
        "avg_pool2d": qnnpack.WindowAverage(),
        "avg_pool2d:adaptive": qnnpack.AdaptiveAverage(),
        "mean": mlas.GlobalAverage(),
        "hard_swish": qnnpack.HARD_SWISH,
        "dynamic_parameter": dynamic.Parameter(reduces=False),
        "dynamic_quantize": dynamic.QuantizeByParameters(),
        "dynamic_scale": dynamic.ScaleByParameters(fused=False),
    },
)

EXPORTED = Mode(
    PT2E,
    "PyTorch 2.13.0, an exported program in eager mode",
    {
        **EXACT,
        "quantize": onednn.Reorder(),
        "requantize": aten.Rescale(),
        "conv2d+requantize": aten.FbgemmRequantize(),
        "conv2d_transpose+requantize": aten.FbgemmRequantize(),
        "dense+requantize": aten.FbgemmRequantize(),
        "add": decomposed.RealAdd(),
        "mul": decomposed.RealMul(),
        "avg_pool2d": decomposed.RealAverage(),
        "concatenate": aten.FloatConcatenate(),
        "mean": mlas.GlobalAverage(),
        "elu": aten_unary.ELU,
        "hard_sigmoid": aten_unary.HARD_SIGMOID,
        "hard_swish": aten_unary.HARD_SWISH,
        "leaky_relu": aten_unary.LEAKY_RELU,
        "logistic": aten_unary.LOGISTIC,
        "silu": aten_unary.SILU,
        "tanh": aten_unary.REAL_TANH,
    },
)
