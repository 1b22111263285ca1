"""The choices and limits of an evaluation. This module imports nothing, so that the command line can show them."""

from __future__ import annotations

from collections.abc import Mapping

# The option `--against` of `octet evaluate` -> the name of the runtime.
RUNTIMES: Mapping[str, str] = {
    "litert": "LiteRT",
    "onnxruntime": "ONNX Runtime",
    "torch": "PyTorch",
    "mxnet": "MXNet",
    "openvino": "OpenVINO",
}
MOST_CASES = 100
MOST_SAMPLES = 1 << 62
