"""The models of the contest: one row per model, with its file in each format.

Paths are relative to the folder of generated models (`python -m benchmarks.models`) or to that of supplied models
(`harness.home.SHARED`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.models.samples import SAMPLES
from benchmarks.models.zoo.entries import CONTESTED, Entry

ZOO = "zoo"  # the part of the catalog that contains the zoo's networks


@dataclass(frozen=True)
class Row:
    """One model at one batch size.

    Attributes:
        files: the model's files by format: `tflite`, `onnx`, `torch` and `mxnet` in int8; `tflite_fp32` and so on in
            float32. Octet compiles the files `tflite`, `onnx` and `mxnet`.
        shape: the shape of one sample of the input in the ONNX, TorchScript and MXNet files (`C, H, W`), which leave
            the batch size open.
        part: the part of the catalog and of the report; "" for the networks that exist as TFLite files.
        inputs: the file with the input arrays for all contestants, as `zoo.make` writes it. Without it, the inputs are
            random values.
    """

    name: str
    title: str
    files: dict[str, str]
    shape: tuple[int, ...] = ()
    batch: int = 1
    note: str = field(default="", compare=False)
    part: str = ""
    inputs: str = ""

    @property
    def source(self) -> str:
        """Returns the file without which the model cannot be compared."""
        return next(self.files[form] for form in ("tflite", "onnx", "mxnet") if form in self.files)


def _generated(network: str, title: str) -> Row:
    shape = SAMPLES[network].channels_first
    files = {form: _file(network, form) for form in _MADE_BY[network]}
    if "onnx" in files:
        files["onnx_fp32"] = f"onnx/{network}.fp32.onnx"  # the file from which it is created
    return Row(network, title, files, shape, note="random weights")


def _file(network: str, form: str) -> str:
    return {
        "tflite": f"tflite/{network}.int8.tflite",
        "onnx": f"onnx/{network}.u8s8.onnx",
        "torch": f"torch/{network}.fx_x86.pt",
    }[form]


def _of_mxnet(network: str, title: str) -> Row:
    files = {"mxnet": f"mxnet/{network}.int8.mxnet.zip", "mxnet_fp32": f"mxnet/{network}.fp32.mxnet.zip"}
    return Row(network, title, files, SAMPLES[network].channels_first, note="random weights")


def _given(file: str, title: str, note: str = "") -> Row:
    name = f"tflite/{file}.tflite"
    return Row(file, title, {"tflite": name, "tflite_fp32": dequantized(name)}, note=note)


def _in_batches(row: Row, batch: int) -> Row:
    files = dict(row.files, tflite=batched(row.files["tflite"], batch))
    return Row(f"{row.name}-batch{batch}", f"{row.title}, batch {batch}", files, row.shape, batch, row.note)


def _from_the_zoo(entry: Entry) -> Row:
    name = f"{entry.network.partition(':')[2]}.{entry.tool}"
    files, inputs = {"onnx": entry.file}, f"{entry.file}.npz"
    return Row(name, f"{entry.title}, {entry.tool}", files, note="random weights", part=ZOO, inputs=inputs)


def batched(file: str, batch: int) -> str:
    """Returns the name of the variant of `file` with another batch size."""
    return file.replace(".tflite", f".batch{batch}.tflite")


def dequantized(file: str) -> str:
    """Returns the name of the float32 form of `file`."""
    return file.replace(".tflite", ".dequantized.tflite")


def symmetric(file: str) -> str:
    """Returns the name of the variant of `file` with symmetric weights."""
    return file.replace(".tflite", ".symmetric.tflite")


_EVERYWHERE = ("tflite", "onnx", "torch")
_MADE_BY: dict[str, Sequence[str]] = {
    "resnet18": _EVERYWHERE,
    "resnet50": _EVERYWHERE,
    "mobilenet_v2": _EVERYWHERE,
    "inception_v3": _EVERYWHERE,
    "transformer": ("tflite", "onnx"),
    "vww": ("tflite",),
    "ad01": ("tflite",),
    "deeplab_v3": ("tflite",),
    "ssdlite": ("tflite",),
    "lstm": ("tflite",),
}
_RESNET50 = _generated("resnet50", "ResNet-50 int8")
_RESNET50_FP32 = {
    "tflite_fp32": "tflite/resnet50.fp32.tflite",
    "torch_fp32": "torch/resnet50.fp32.pt",
}
_HOSTED = _given("mobilenet_v2_1.0_224_quant", "MobileNetV2 uint8 per-tensor (hosted)", "asymmetric weights")

ROWS: Sequence[Row] = (
    Row("resnet50", _RESNET50.title, _RESNET50.files | _RESNET50_FP32, _RESNET50.shape, note="random weights"),
    _generated("mobilenet_v2", "MobileNetV2 int8 per-channel"),
    _given("tf2_mobilenet_v2_1.0_224_ptq", "MobileNetV2 int8 per-channel (tf2 ptq)"),
    _HOSTED,
    Row(
        "mobilenet_v2_symmetric",
        "MobileNetV2 uint8 per-tensor, symmetric weights",
        {"tflite": symmetric(_HOSTED.files["tflite"])},
        note="the hosted file with its weights' zero points moved to 128",
    ),
    _given("mobilenet_v1_0.25_128_quant", "MobileNetV1 0.25 128 uint8 per-tensor (hosted)", "asymmetric weights"),
    _given("pretrainedResnet_quant", "ResNet-8 int8 (MLPerf Tiny)"),
    _given("kws_ref_model", "DS-CNN keyword spotting int8 (MLPerf Tiny)"),
    _generated("vww", "MobileNetV1 0.25 96, visual wake words int8 (MLPerf Tiny)"),
    _generated("ad01", "Autoencoder, anomaly detection int8 (MLPerf Tiny)"),
    _generated("inception_v3", "Inception-v3 int8"),
    _generated("resnet18", "ResNet-18 int8"),
    _of_mxnet("resnet50_v1", "ResNet-50 v1 int8 (MXNet)"),
    _of_mxnet("resnet18_v1", "ResNet-18 v1 int8 (MXNet)"),
    _of_mxnet("inceptionv3", "Inception-v3 int8 (MXNet)"),
    _generated("deeplab_v3", "DeepLabV3 MobileNetV2 257 int8"),
    _generated("ssdlite", "SSDLite MobileNetV2 300 int8"),
    _generated("lstm", "LSTM, two layers of 128, 64 steps int8"),
    _generated("transformer", "Transformer encoder, 4 layers of 256, 128 tokens int8"),
    _in_batches(_RESNET50, 8),
    _in_batches(_RESNET50, 16),
    *map(_from_the_zoo, CONTESTED),
)


def rows_named(names: Sequence[str]) -> list[Row]:
    """Returns the rows in the catalog's order; all of them if `names` is empty. The name `zoo` selects all rows of this
    part.

    Raises:
        SystemExit: the catalog does not have one of the names.
    """
    unknown = set(names) - {ZOO} - {row.name for row in ROWS}
    if unknown:
        known = ", ".join([*(it.name for it in ROWS if it.part != ZOO), f"{ZOO} (all of its part)"])
        raise SystemExit(f"no such model: {', '.join(sorted(unknown))}; there are {known}")
    return [row for row in ROWS if not names or row.name in names or (row.part and row.part in names)]
