"""Numerics modes: the names of the reference runtimes whose arithmetic a build follows, bit for bit.

The formulas of each mode, operator by operator, are in `compiler/qnn/numerics/`.
"""

from __future__ import annotations

from service.core.errors import Unsupported

LITERT_REFERENCE = "litert-reference"
XNNPACK = "xnnpack"
ONNXRUNTIME = "onnxruntime"
FBGEMM = "fbgemm"
ONEDNN = "onednn"
TORCH_X86 = "torch-x86"
QNNPACK = "qnnpack"
PT2E = "pt2e"
MXNET_ONEDNN = "mxnet-onednn"
OPENVINO = "openvino"
EXECUTORCH = "executorch"
_TORCH = (FBGEMM, ONEDNN, TORCH_X86, QNNPACK)
# Format of the source -> the modes of its framework's runtimes; the first is the default.
MODES_OF: dict[str, tuple[str, ...]] = {
    "tflite": (LITERT_REFERENCE, XNNPACK),
    "onnx": (ONNXRUNTIME,),
    "torchscript": _TORCH,
    "pt2": (PT2E,),
    "mxnet": (MXNET_ONEDNN,),
    "openvino": (OPENVINO,),
    "executorch": (EXECUTORCH,),
    # a graph belongs to no framework
    "qnn": (LITERT_REFERENCE, XNNPACK, ONNXRUNTIME, *_TORCH, PT2E, MXNET_ONEDNN, OPENVINO, EXECUTORCH),
}
MODES: tuple[str, ...] = tuple(dict.fromkeys(mode for modes in MODES_OF.values() for mode in modes))
DEFAULT_MODE: dict[str, str] = {source_format: modes[0] for source_format, modes in MODES_OF.items()}


def add_format(name: str, mode: str) -> None:
    """Adds a format of a dialect, whose models are compiled in `mode` unless the user chooses another one.

    Raises:
        Unsupported: no mode has this name.
    """
    MODES_OF[name] = tuple(dict.fromkeys((parse_mode(mode), *MODES)))
    DEFAULT_MODE[name] = mode


def parse_mode(name: str) -> str:
    """Returns `name` if it is the name of a mode.

    Raises:
        Unsupported: no mode has this name.
    """
    if name not in MODES:
        raise Unsupported(f"unknown numerics mode {name!r}", hint=f"use one of: {', '.join(MODES)}")
    return name
