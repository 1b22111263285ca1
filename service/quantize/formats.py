"""The formats whose float models are quantized, and the format and numerics of what comes of them. Loads no TVM."""

from __future__ import annotations

from service.compiler.importers.detect import ONNX, PT2, TFLITE, TORCHSCRIPT
from service.core.errors import Unsupported
from service.core.numerics import DEFAULT_MODE

FORMATS = (ONNX, TFLITE, TORCHSCRIPT, PT2)
RESULT = ONNX  # the format of every quantized file, whichever the float model's is
RESULT_NUMERICS = DEFAULT_MODE[RESULT]


def require(format_: str) -> None:
    """Raises `Unsupported`: a model of this format is not quantized here."""
    if format_ not in FORMATS:
        raise Unsupported(
            f"models of the format {format_} are not quantized here; of these they are: {', '.join(FORMATS)}",
            hint="export the float model as ONNX, and quantize that",
        )
