"""The contestants, and the file of a model that each runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.harness.home import OWN_ENVIRONMENT
from benchmarks.models.catalog import Row

PEAK = "peak"


@dataclass(frozen=True)
class Contestant:
    """A framework with its settings.

    Attributes:
        file: the format of the model that it runs, a key of `Row.files`; empty for the peak.
        numerics: the mode for which Octet compiles.
        options: the options for its module of `harness.frameworks`.
        slow: true if it takes so long that it takes part only when it is named.
    """

    name: str
    title: str
    environment: str
    framework: str
    file: str
    numerics: str = ""
    options: dict[str, str] = field(default_factory=dict)
    slow: bool = False

    @property
    def is_octet(self) -> bool:
        return bool(self.numerics)

    @property
    def is_fp32(self) -> bool:
        return self.file.endswith("_fp32")


def _openvino(name: str, title: str, file: str, precision: str) -> Contestant:
    return Contestant(name, title, "openvino", "open_vino", file, options={"precision": precision})


CONTESTANTS: Sequence[Contestant] = (
    Contestant(PEAK, "peak", OWN_ENVIRONMENT, "peak", ""),
    Contestant("octet-xnnpack", "Octet (xnnpack)", OWN_ENVIRONMENT, "octet", "tflite", "xnnpack"),
    Contestant(
        "octet-bound",
        "Octet (xnnpack, bound)",
        OWN_ENVIRONMENT,
        "octet",
        "tflite",
        "xnnpack",
        options={"call": "bound"},
    ),
    Contestant("octet-reference", "Octet (litert-reference)", OWN_ENVIRONMENT, "octet", "tflite", "litert-reference"),
    Contestant("octet-onnx", "Octet (ONNX, onnxruntime)", OWN_ENVIRONMENT, "octet", "onnx", "onnxruntime"),
    Contestant("octet-mxnet", "Octet (MXNet, mxnet-onednn)", OWN_ENVIRONMENT, "octet", "mxnet", "mxnet-onednn"),
    Contestant("litert", "LiteRT", OWN_ENVIRONMENT, "litert", "tflite"),
    Contestant("onnxruntime", "ONNX Runtime", "onnxruntime", "onnx_runtime", "onnx"),
    _openvino("openvino", "OpenVINO (ONNX)", "onnx", "f32"),
    _openvino("openvino-bf16", "OpenVINO (ONNX, bf16)", "onnx", "bf16"),
    _openvino("openvino-tflite", "OpenVINO (TFLite)", "tflite", "f32"),
    _openvino("openvino-tflite-bf16", "OpenVINO (TFLite, bf16)", "tflite", "bf16"),
    Contestant("torch", "PyTorch (FX)", "torch", "pytorch", "torch", options={"precision": "int8"}),
    Contestant("mxnet", "MXNet (oneDNN)", "mxnet", "mx_net", "mxnet", options={"precision": "int8"}),
    Contestant("octet-fp32", "Octet (float32)", OWN_ENVIRONMENT, "octet", "onnx_fp32", "onnxruntime"),
    Contestant("octet-fp32-tflite", "Octet (TFLite, float32)", OWN_ENVIRONMENT, "octet", "tflite_fp32", "xnnpack"),
    Contestant("litert-fp32", "LiteRT", OWN_ENVIRONMENT, "litert", "tflite_fp32"),
    Contestant("onnxruntime-fp32", "ONNX Runtime", "onnxruntime", "onnx_runtime", "onnx_fp32"),
    _openvino("openvino-fp32", "OpenVINO (f32)", "onnx_fp32", "f32"),
    Contestant("torch-fp32", "PyTorch", "torch", "pytorch", "torch_fp32", options={"precision": "f32"}),
    Contestant("mxnet-fp32", "MXNet (oneDNN)", "mxnet", "mx_net", "mxnet_fp32", options={"precision": "f32"}),
    Contestant("tvm-fp32", "stock TVM", OWN_ENVIRONMENT, "stock_tvm", "tflite_fp32", slow=True),
)


def contestants_named(names: Sequence[str]) -> list[Contestant]:
    """Returns the contestants in the order of `CONTESTANTS`; all but the slow ones if `names` is empty. The peak always
    takes part.

    Raises:
        SystemExit: a name does not exist.
    """
    unknown = set(names) - {contestant.name for contestant in CONTESTANTS}
    if unknown:
        known = ", ".join(contestant.name for contestant in CONTESTANTS)
        raise SystemExit(f"no such contestant: {', '.join(sorted(unknown))}; there are {known}")
    return [it for it in CONTESTANTS if it.name == PEAK or (it.name in names if names else not it.slow)]


def contestants_for(row: Row, contestants: Sequence[Contestant]) -> Iterator[Contestant]:
    """Yields the contestants that have a file of this model."""
    return (it for it in contestants if it.name == PEAK or it.file in row.files)
