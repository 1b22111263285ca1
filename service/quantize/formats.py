"""The formats whose float models are quantized. Loads no TVM."""

from __future__ import annotations

from service.compiler.importers.detect import ONNX, PT2, TFLITE, TORCHSCRIPT
from service.core.errors import Unsupported

FORMATS = (ONNX, TFLITE, TORCHSCRIPT, PT2)


def require(format_: str) -> None:
    """Raises `Unsupported`: a model of this format is not quantized here."""
    if format_ not in FORMATS:
        raise Unsupported(
            f"models of the format {format_} are not quantized here; of these they are: {', '.join(FORMATS)}",
            hint="export the float model as ONNX, and quantize that",
        )
