"""MXNet 1.x on oneDNN."""

from __future__ import annotations

from service.compiler.qnn.numerics.mode import EXACT, Mode
from service.compiler.qnn.numerics.onednn import FloatAveragePool, PostSum, RatioRequantize, Reorder, ScaledSum
from service.core.builds.numerics import MXNET_ONEDNN

ONEDNN = Mode(
    MXNET_ONEDNN,
    "MXNet 1.9.1 with oneDNN on AVX-512 VNNI",
    {
        **EXACT,
        "quantize": Reorder(),
        "requantize": RatioRequantize(),
        "requantize_add": PostSum(),
        "add": ScaledSum(),
        "avg_pool2d": FloatAveragePool(),
    },
)
