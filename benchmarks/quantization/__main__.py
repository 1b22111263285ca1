"""Quantizes float networks by each method, by Octet and by ONNX Runtime, and writes QUANTIZATION.md:

python -m benchmarks.quantization
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.models.photographs import photographs
from benchmarks.places import SHARED, default_home
from benchmarks.quantization.sources import SIZE, Array, dequantized, labelled
from service.core.build import Stage
from service.core.settings import load_settings
from service.core.target import detect_host
from service.quantize.data import Data, accuracy
from service.quantize.methods import METHODS
from service.quantize.observing import Children, Workshop
from service.quantize.quantization import Calibration, Options
from service.quantize.sensitivity import decibels

_CALIBRATING = 32
_THEIRS = ("MinMax", "Entropy", "Percentile")
_PAGE = Path(__file__).parents[1] / "QUANTIZATION.md"
_SCRIPT = Path(__file__).with_name("quantize_onnxruntime.py")
_HOSTED = {
    "MobileNetV2, hosted uint8 file dequantized": "mobilenet_v2_1.0_224_quant",
    "MobileNetV2, TF2 file dequantized": "tf2_mobilenet_v2_1.0_224_ptq",
}


@dataclass(frozen=True)
class Network:
    """A float network and its inputs; the first `_CALIBRATING` of them are for calibration.

    Attributes:
        labels: none where its weights are random.
    """

    title: str
    float: bytes
    images: Array
    labels: Array | None


@dataclass(frozen=True)
class Row:
    """A quantized file.

    Attributes:
        seconds: that calibrating and quantizing took.
    """

    name: str
    file: Path
    seconds: float


class _Silent:
    def stage(self, stage: Stage, fraction: float = 0.0) -> None:
        pass

    def log(self, line: str) -> None:
        pass


def main() -> None:
    sections = []
    for network in _networks():
        with tempfile.TemporaryDirectory() as folder:
            sections.append(_section(network, Path(folder)))
            print(sections[-1], flush=True)
    _PAGE.write_text("\n".join([_HEAD.format(machine=detect_host().model_name, count=_CALIBRATING), *sections]))


def _networks() -> Sequence[Network]:
    images, labels = labelled()
    hosted = [
        Network(title, dequantized(SHARED / "models" / "tflite" / f"{name}.tflite"), images, labels)
        for title, name in _HOSTED.items()
    ]
    normalized = photographs(SHARED / "images", 100, SIZE).transpose(0, 3, 1, 2)
    random = (SHARED / "models" / "onnx" / "mobilenet_v2.fp32.onnx").read_bytes()
    return [*hosted, Network("MobileNetV2, random weights", random, np.ascontiguousarray(normalized), None)]


def _section(network: Network, folder: Path) -> str:
    (folder / "float.onnx").write_bytes(network.float)
    np.save(folder / "all.npy", network.images)
    np.save(folder / "calibration.npy", network.images[:_CALIBRATING])
    rows, ours = _ours(network, folder)
    rows += [_theirs(folder, method) for method in _THEIRS]
    real, *answers = _answers(folder, [folder / "float.onnx", *(row.file for row in rows)])
    equal = np.array_equal(ours, answers[0])
    lines = [
        f"## {network.title}\n",
        "| quantized by | right | same class as float | noise of the output | s | bytes |",
        "| --- | --- | --- | --- | --- | --- |",
        f"| float | {_right(real, network.labels)} | | | | {len(network.float):,} |",
    ]
    lines += [
        f"| {row.name} | {_right(found, network.labels)} | {_share(found, real.argmax(axis=1))} | "
        f"{decibels((real**2).sum(), ((real - found) ** 2).sum()):.1f} dB | {row.seconds:.0f} | "
        f"{row.file.stat().st_size:,} |"
        for row, found in zip(rows, answers, strict=True)
    ]
    said = "are equal" if equal else f"**differ in {np.mean(ours != answers[0]):.2%} of the values**"
    lines.append(f"\nAnswers to all {len(ours)} inputs of `{rows[0].name}`, by Octet and by ONNX Runtime, {said}.\n")
    return "\n".join(lines)


def _ours(network: Network, folder: Path) -> tuple[list[Row], Array]:
    """Our files, and what the first of them answers when Octet runs it."""
    (folder / "scratch").mkdir()
    workshop = Workshop(
        folder / "scratch", Children(load_settings({"build_nice": 0}), _Silent(), {"": (1, 3, SIZE, SIZE)})
    )
    started_s, rows = time.monotonic(), []
    data = Data(folder / "calibration.npy")
    calibration = Calibration(network.float, workshop, data, Options("kl"))
    shared_s = time.monotonic() - started_s
    first = None
    for method in METHODS:
        started_s = time.monotonic()
        made = calibration.quantize(Options(method))
        first = first or made
        file = folder / f"octet-{method}.onnx"
        file.write_bytes(made.file)
        rows.append(Row(f"Octet, {method}", file, shared_s + time.monotonic() - started_s))
    assert first is not None
    return rows, calibration.measure(first, data=Data(folder / "all.npy")).answers


def _theirs(folder: Path, method: str) -> Row:
    file = folder / f"onnxruntime-{method}.onnx"
    told = _run("quantize", folder / "float.onnx", folder / "calibration.npy", method, file)
    return Row(f"ONNX Runtime, {method}", file, float(told.splitlines()[-1]))


def _answers(folder: Path, models: Sequence[Path]) -> list[Array]:
    """Of each model to all inputs, float64, by ONNX Runtime."""
    _run("run", folder / "all.npy", folder / "answers.npz", *models)
    with np.load(folder / "answers.npz") as found:
        return [found[f"answers_{place}"].astype(np.float64) for place in range(len(models))]


def _run(*arguments: object) -> str:
    python = default_home().python("onnxruntime")
    command = [str(python), str(_SCRIPT), *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _right(answers: Array, labels: Array | None) -> str:
    return "" if labels is None else _share(answers, labels)


def _share(answers: Array, classes: Array) -> str:
    counted: Mapping[str, float | int] = accuracy(answers.argmax(axis=1).tolist(), classes.tolist())
    return f"{100 * counted['share']:.0f} ± {100 * counted['standard_error']:.1f} %"


_HEAD = """# What quantization costs

Written by `python -m benchmarks.quantization` on {machine}.

Each network is quantized from float32 by Octet (`octet quantize`, each method) and by ONNX Runtime 1.31.1
(`quantize_static`, QDQ, its three methods), both with int8 weights by channel and uint8 activations, calibrated on the
same {count} photographs. All 100 photographs, the {count} among them, are then classified by each file in ONNX Runtime.
Calibration sees no label. The photographs are one of every tenth class of ImageNet, in an order drawn by seed 0.

- *right*: of 100 labels, with the standard error of the share: differences of less than two of them say nothing.
- *same class as float*: the most likely class is the float network's.
- *noise of the output*: 10 log10 of the float logits' squares over the squares of what the quantized ones differ by.
- *s*: seconds for calibrating and quantizing on this machine, which was busy otherwise; for Octet with compiling the
  float network and with both passes over the inputs, which all of its methods share.

The first two networks have trained weights: those of hosted TFLite files, times their scales. They have been rounded to
8 bits before (the first by tensor, in training that knew of it; the second by channel), which favours every tool alike.
The third has random weights: its classes mean nothing, and it is noisier than a trained one.
"""


if __name__ == "__main__":
    main()
