"""OpenVINO's CPU plugin."""

from __future__ import annotations

from service.compiler.qnn.numerics.mode import EXACT, Mode
from service.compiler.qnn.numerics.onednn import Reorder
from service.core.builds.numerics import OPENVINO

CPU_PLUGIN = Mode(
    OPENVINO,
    "OpenVINO 2026.4.1, CPU, with INFERENCE_PRECISION_HINT=f32, on AVX512-VNNI",
    {
        **EXACT,
        "quantize": Reorder(),
    },
)
