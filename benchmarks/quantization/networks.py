"""The float networks of the comparison, their inputs, and how their answers are judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.models.photographs import photographs
from benchmarks.places import SHARED, default_home
from benchmarks.quantization import text
from benchmarks.quantization.sources import SIZE, dequantized, labelled

Array = np.ndarray[Any, np.dtype[Any]]
Counted = tuple[float, float]  # a share, and its standard error
_CALIBRATING = 32


@dataclass(frozen=True)
class Network:
    """A float network.

    Attributes:
        what: where it and its inputs come from.
        opset: of the file.
        calibration: inputs for calibration, as `inputs`.
        decision: what of an answer counts: one of `peer.DECISIONS`.
        score: of all decisions, how many are right, with the standard error; None where that is not known.
        agree: the same of decisions that equal the float network's.
        scored, agreed: what these two are called.
    """

    what: str
    float: bytes
    opset: int
    inputs: Array
    calibration: Array
    decision: str
    score: Callable[[Array], Counted | None]
    agree: Callable[[Array, Array], Counted]
    scored: str = "right"
    agreed: str = "same class as float"


def shared(right: Array) -> Counted:
    """The mean of what each input counts, with its standard error."""
    values = np.asarray(right, np.float64)
    return float(values.mean()), float(values.std() / len(values) ** 0.5)


def _classifier(what: str, model: bytes, images: Array, labels: Array | None) -> Network:
    return Network(
        what,
        model,
        13,
        images,
        images[:_CALIBRATING],
        "class",
        lambda found: None if labels is None else shared(found == labels),
        lambda found, real: shared(found == real),
    )


def _hosted(name: str, said: str) -> Network:
    images, labels = labelled()
    what = (
        f"The weights of a hosted TFLite file times their scales: they have been rounded to 8 bits before, {said}, "
        "which favours every tool alike. 100 photographs, one of every tenth class of ImageNet; 32 of them calibrate."
    )
    return _classifier(what, dequantized(SHARED / "models" / "tflite" / f"{name}.tflite"), images, labels)


def _random() -> Network:
    normalized = np.ascontiguousarray(photographs(SHARED / "images", 100, SIZE).transpose(0, 3, 1, 2))
    model = (SHARED / "models" / "onnx" / "mobilenet_v2.fp32.onnx").read_bytes()
    what = "Its classes mean nothing, and it is noisier than a trained network. The same photographs, normalized."
    return _classifier(what, model, normalized, None)


def _recognizer(count: int) -> Network:
    model = text.network(default_home(), "ch_PP-OCRv4_rec_infer")
    characters, (images, written) = text.alphabet(model), text.lines(count, 0)

    def score(found: Array) -> Counted:
        wrong = [text.distance(text.read(own, characters), right) for own, right in zip(found, written, strict=True)]
        sizes = np.array([len(right) for right in written])
        share = 1 - sum(wrong) / sizes.sum()
        # Of a ratio of sums, over lines (Cochran, Sampling Techniques, 2.11).
        rest = np.array(wrong) - (1 - share) * sizes
        return share, float((rest**2).sum() ** 0.5 / sizes.sum())

    return Network(
        f"PP-OCRv4's recognizer of lines, with an attention of two layers. {count} lines of words from the Apache "
        "license in Debian's fonts DejaVu and Liberation, of many sizes and colors, turned and with noise: "
        f"{sum(map(len, written)):,} characters, of which those right are counted (1 less the edit distance's share). "
        f"{_CALIBRATING} other lines calibrate.",
        model.read_bytes(),
        13,
        images,
        text.lines(_CALIBRATING, 1)[0],
        "characters",
        score,
        lambda found, real: shared((found == real).all(axis=1)),
        "right characters",
        "same line as float",
    )


def _turns(count: int) -> Network:
    images, turned = text.signs(count, 2)
    return Network(
        f"PP-OCR's classifier of lines that are upside down. {count} lines as above, each second one turned; "
        f"{_CALIBRATING} others calibrate.",
        text.network(default_home(), "ch_ppocr_mobile_v2.0_cls_infer").read_bytes(),
        13,
        images,
        text.signs(_CALIBRATING, 3)[0],
        "class",
        lambda found: shared(found == np.array(turned)),
        lambda found, real: shared(found == real),
    )


def _detector(count: int) -> Network:
    images = text.pages(count // 4, 4)

    def agree(found: Array, real: Array) -> Counted:
        own, theirs = np.unpackbits(found, axis=1), np.unpackbits(real, axis=1)
        return shared((own & theirs).sum(axis=1) / np.maximum((own | theirs).sum(axis=1), 1))

    return Network(
        f"PP-OCRv4's detector of lines. {len(images)} pages of three lines as above; {_CALIBRATING} others calibrate.",
        text.network(default_home(), "ch_PP-OCRv4_det_infer").read_bytes(),
        13,
        images,
        text.pages(_CALIBRATING, 5),
        "mask",
        lambda found: None,
        agree,
        agreed="pixels of text, overlap with float's (IoU)",
    )


# By title; made of how many pictures of text are to be read.
NETWORKS: Mapping[str, Callable[[int], Network]] = {
    "PP-OCRv4, recognition": _recognizer,
    "PP-OCRv4, detection": _detector,
    "PP-OCR, direction": _turns,
    "MobileNetV2, hosted uint8 file dequantized": lambda count: _hosted(
        "mobilenet_v2_1.0_224_quant", "by tensor, in training that knew of it"
    ),
    "MobileNetV2, TF2 file dequantized": lambda count: _hosted("tf2_mobilenet_v2_1.0_224_ptq", "by channel"),
    "MobileNetV2, random weights": lambda count: _random(),
}
