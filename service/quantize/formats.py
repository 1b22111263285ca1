"""The formats of float models that can be quantized, and the format and numerics of the result. This module does not
load TVM.
"""

from __future__ import annotations

from service.compiler.importers.detect import ONNX, PT2, TFLITE, TORCHSCRIPT
from service.core.builds.numerics import DEFAULT_MODE
from service.core.errors import Unsupported

FORMATS = (ONNX, TFLITE, TORCHSCRIPT, PT2)
RESULT = ONNX  # the format of quantized files; the float model may have another format
RESULT_NUMERICS = DEFAULT_MODE[RESULT]


def require(format_: str) -> None:
    """Raises `Unsupported` if models of this format cannot be quantized."""
    if format_ not in FORMATS:
        raise Unsupported(
            f"models of the format {format_} cannot be quantized; only these can: {', '.join(FORMATS)}",
            hint="export the float model as ONNX, and quantize that",
        )
