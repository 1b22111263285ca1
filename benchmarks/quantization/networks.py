"""The float networks of the comparison, their inputs, and how their results are judged."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.harness.home import CHECKOUT, SHARED, default_home
from benchmarks.models.photographs import photographs
from benchmarks.quantization import faces, text
from benchmarks.quantization.judging import Array, Counted, each, overlap
from benchmarks.quantization.packages import PACKAGES, packaged
from benchmarks.quantization.sources import SIZE, digits, labelled, with_real_weights

_CALIBRATING = 32
_NEAR = 0.02  # Landmarks agree within this share of a picture's width.
_CLOSE = 0.1  # Centres of people agree within this share.


@dataclass(frozen=True)
class Network:
    """A float network.

    Attributes:
        what: the origin of the network and its inputs.
        source: the file, ONNX or TFLite.
        inputs: `[count, …]`, each an input of the network.
        calibration: inputs for calibration, as `inputs`.
        decision: the part of a result that counts: one of `peer.DECISIONS`.
        judge: a function that counts the correct decisions; None if the correct ones are unknown.
        agree: a function that counts the decisions that equal the float network's.
        scored, agreed: the titles of the columns for the results of `judge` and `agree`.
        labels: the correct classes of `calibration`, for the row with an accuracy budget; empty if the network lacks
            that row.
        options: true if each option for weights has its own row.
    """

    what: str
    source: bytes
    inputs: Array
    calibration: Array
    decision: str
    agree: Callable[[Array, Array], Counted]
    judge: Callable[[Array], Counted] | None = None
    scored: str = "right"
    agreed: str = "same class as float"
    labels: tuple[int, ...] = ()
    options: bool = False


def _same(found: Array, real: Array) -> Counted:
    return each((found == real).reshape(len(found), -1).all(axis=1))


def _classifier(what: str, model: bytes, images: Array, labels: Array, calibration: Array, known: Array) -> Network:
    return Network(
        what,
        model,
        images,
        calibration,
        "class",
        _same,
        lambda found: each(found == labels),
        labels=tuple(known.tolist()),
    )


def _digits(count: int) -> Network:
    file = default_home().models / "quantization" / "digits.npz"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        python = default_home().python("quantization")
        subprocess.run([python, str(Path(__file__).with_name("digits.py")), str(file)], check=True)
    with np.load(file) as found:
        made = dict(found)
    what = (
        "The network of `examples/train_digits.py`, trained by `digits.py` on 1,437 of scikit-learn's digits (seed 0); "
        f"the other 360 are classified, and {_CALIBRATING} of the first calibrate."
    )
    calibration = made["train"][:_CALIBRATING]
    made_of = _classifier(what, digits(made), made["test"], made["labels"], calibration, np.zeros(0, int))
    return replace(made_of, options=True)


def _hosted(name: str, origin: str) -> Network:
    images, labels = labelled()
    what = (
        f"The weights of a hosted TFLite file times their scales: they have been rounded to 8 bits before, {origin}, "
        f"which favours every tool alike. 100 photographs, one of every tenth class of ImageNet; {_CALIBRATING} of "
        "them calibrate."
    )
    model = with_real_weights((SHARED / "models" / "tflite" / f"{name}.tflite").read_bytes())
    return _classifier(what, model, images, labels, images[:_CALIBRATING], labels[:_CALIBRATING])


def _random(count: int) -> Network:
    normalized = np.ascontiguousarray(photographs(SHARED / "images", 100, SIZE).transpose(0, 3, 1, 2))
    model = (SHARED / "models" / "onnx" / "mobilenet_v2.fp32.onnx").read_bytes()
    what = "Its classes mean nothing, and it is noisier than a trained network. The same photographs, normalized."
    return Network(what, model, normalized, normalized[:_CALIBRATING], "class", _same)


def _recognizer(package: str, file: str, origin: str) -> Callable[[int], Network]:
    def build(count: int) -> Network:
        model = packaged(default_home(), package, file).read_bytes()
        characters, (images, written) = text.alphabet(model), text.lines(count, 0)
        sizes = np.array([len(right) for right in written])

        def judge(found: Array) -> Counted:
            read = [text.read(own, characters) for own in found]
            wrong = [text.distance(own, right) for own, right in zip(read, written, strict=True)]
            return Counted(sizes - wrong, sizes)

        return Network(
            f"{origin}, of {_version(package)}. {count} lines of words from the Apache license in Debian's fonts "
            "DejaVu and Liberation, of many sizes and colors, rotated and with noise (seed 0): "
            f"{sizes.sum():,} characters, of which the correct ones are counted (1 minus the edit distance's share). "
            f"{_CALIBRATING} other lines (seed 1) calibrate.",
            model,
            images,
            text.lines(_CALIBRATING, 1)[0],
            "characters",
            _same,
            judge,
            "right characters",
            "same line as float",
        )

    return build


def _turns(count: int) -> Network:
    images, turned = text.signs(count, 2)
    calibration, known = text.signs(_CALIBRATING, 3)
    file = packaged(
        default_home(), "rapidocr-onnxruntime", "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx"
    )
    return _classifier(
        f"PP-OCR's classifier of lines that are upside down, of {_version('rapidocr-onnxruntime')}. {count} lines as "
        f"above (seed 2), every second one rotated; {_CALIBRATING} others (seed 3) calibrate.",
        file.read_bytes(),
        images,
        np.array(turned),
        calibration,
        np.array(known),
    )


def _detector(package: str, file: str, origin: str) -> Callable[[int], Network]:
    def build(count: int) -> Network:
        images, lines = text.pages(count // 4, 4)

        def judge(found: Array) -> Counted:
            masks = np.unpackbits(found, axis=1)[:, : text.PAGE[0] * text.PAGE[1]].reshape(-1, *text.PAGE)
            found_lines = [text.boxes(mask) for mask in masks]
            both = [2 * text.matched(own, real) for own, real in zip(found_lines, lines, strict=True)]
            sizes = [len(own) + len(real) for own, real in zip(found_lines, lines, strict=True)]
            return Counted(np.array(both), np.array(sizes))

        return Network(
            f"{origin}, of {_version(package)}. {len(images)} pages of three lines as above (seed 4). A line is found "
            "if the box around connected pixels of text, grown as in PaddleOCR, overlaps the line's by half (IoU); the "
            "harmonic mean of precision and recall is counted. "
            f"{_CALIBRATING} other pages (seed 5) calibrate.",
            packaged(default_home(), package, file).read_bytes(),
            images,
            text.pages(_CALIBRATING, 5)[0],
            "mask",
            overlap,
            judge,
            "lines found (F1)",
            "pixels of text, overlap with float's (IoU)",
        )

    return build


def _faces(count: int) -> Network:
    images, boxes = faces.scenes(count, 128, 6)
    middles = faces.anchors(faces.OF_FACES)

    def judge(found: Array) -> Counted:
        x, y = middles[found].T
        return each((x > boxes[:, 0]) & (x < boxes[:, 2]) & (y > boxes[:, 1]) & (y < boxes[:, 3]))

    return Network(
        f"MediaPipe's face detector of short range, of {_version('mediapipe')}. {count} photographs with one portrait "
        "each, cropped, scaled, mirrored and lit at random (seed 6): a face is found if it contains the centre of the "
        f"likeliest box. {_CALIBRATING} others (seed 7) calibrate.",
        _mediapipe("face_detection/face_detection_short_range.tflite"),
        images,
        faces.scenes(_CALIBRATING, 128, 7)[0],
        "best",
        _same,
        judge,
        "faces found",
        "same box as float",
    )


def _landmarks(file: str, origin: str, pictures: Callable[[int, int], Array], width: float) -> Callable[[int], Network]:
    def build(count: int) -> Network:
        def agree(found: Array, real: Array) -> Counted:
            return each((np.abs(found - real) < _NEAR * width).mean(axis=1))

        images = pictures(count, 8)
        return Network(
            f"{origin}, of {_version('mediapipe')} (seed 8); {_CALIBRATING} others (seed 9) calibrate. Without "
            f"labels, a coordinate agrees if it is within {_NEAR:.0%} of the picture's width of float's.",
            _mediapipe(file),
            images,
            pictures(_CALIBRATING, 9),
            "values",
            agree,
            agreed="coordinates that agree with float's",
        )

    return build


def _photographs(count: int, seed: int) -> Array:
    """Returns `photographs` without hands: `[count, 224, 224, 3]` from 0 to 1."""
    images = (labelled()[0] + 1) / 2
    return images[np.random.default_rng(seed).permutation(len(images))[:count]]


_LABELS = {  # types of files in this checkout, by their suffixes
    ".py": "python",
    ".md": "markdown",
    ".json": "json",
    ".html": "html",
    ".yaml": "yaml",
    ".png": "png",
    ".c": "c",
    ".js": "javascript",
    ".css": "css",
    ".toml": "toml",
}
_EACH = 30


def _magika(count: int) -> Network:
    folder = packaged(default_home(), "magika", "magika/models/standard_v3_3/model.onnx").parent
    config = json.loads((folder / "config.min.json").read_text())
    names, rng = config["target_labels_space"], np.random.default_rng(10)
    listed = subprocess.run(["git", "ls-files"], cwd=CHECKOUT, check=True, capture_output=True, text=True)
    found: list[tuple[Array, int]] = []
    for ending, label in _LABELS.items():
        files = [CHECKOUT / name for name in listed.stdout.splitlines() if name.endswith(ending)]
        files = [file for file in files if file.stat().st_size > config["beg_size"]]
        for position in rng.permutation(len(files))[:_EACH]:
            found.append((_ends(files[position].read_bytes(), config), names.index(label)))
    order = rng.permutation(len(found))
    inputs, labels = (
        np.stack([found[position][0] for position in order]),
        np.array([found[position][1] for position in order]),
    )
    some = slice(0, _CALIBRATING)
    return _classifier(
        f"Magika's classifier of files by their bytes, of {_version('magika')}. {len(inputs) - _CALIBRATING} files of "
        f"this checkout of {len(_LABELS)} types, which their names show (seed 10); {_CALIBRATING} others calibrate.",
        (folder / "model.onnx").read_bytes(),
        inputs[_CALIBRATING:],
        labels[_CALIBRATING:],
        inputs[some],
        np.zeros(0, int),
    )


def _ends(content: bytes, config: Mapping[str, int]) -> Array:
    """Returns the first and the last bytes, without surrounding white space, as in Magika."""
    half, block = config["beg_size"], config["block_size"]
    first, last = content[:block].lstrip()[:half], content[-block:].rstrip()[-half:]
    padded = np.full(2 * half, config["padding_token"], np.int32)
    padded[: len(first)] = np.frombuffer(first, np.uint8)
    padded[2 * half - len(last) :] = np.frombuffer(last, np.uint8)
    return padded


def _silero(count: int) -> Network:
    file = packaged(default_home(), "silero-vad", "silero_vad/data/silero_vad_openvino_16k.onnx")
    folder = default_home().models / "quantization"
    folder.mkdir(parents=True, exist_ok=True)
    model, data = folder / "speech.onnx", folder / "speech.npz"
    python, script = default_home().python("quantization"), Path(__file__).with_name("speech.py")
    subprocess.run([str(each) for each in (python, script, file, model, data, 3 * count)], check=True)
    with np.load(data) as found:
        windows, calibration = found["windows"], found["calibration"]
    return Network(
        f"Silero's voice activity detector, of {_version('silero-vad')}, its form without If: "
        f"convolutions on a spectrum, and an LSTM. {len(windows)} windows of 32 ms, of sentences that espeak-ng speaks "
        "between pauses in noise (seed 13), each with the state that the float network had there; "
        f"{len(calibration)} of other sentences and voices (seed 14) calibrate. No labels exist.",
        model.read_bytes(),
        windows,
        calibration,
        "probable",
        _same,
        agreed="same decision as float",
    )


def _mediapipe(file: str) -> bytes:
    return packaged(default_home(), "mediapipe", f"mediapipe/modules/{file}").read_bytes()


def _person(count: int) -> Network:
    def scenes(count: int, seed: int) -> Array:
        return np.asarray((faces.scenes(count, 256, seed)[0] + 1) / 2, np.float32)

    return Network(
        f"MediaPipe's selfie segmentation, of {_version('mediapipe')}. {count} photographs with one portrait each, as "
        f"for the face detector (seed 11); {_CALIBRATING} others (seed 12) calibrate. No labels exist.",
        _mediapipe("selfie_segmentation/selfie_segmentation.tflite"),
        scenes(count, 11),
        scenes(_CALIBRATING, 12),
        "mask",
        overlap,
        agreed="pixels of the person, overlap with float's (IoU)",
    )


def _poses(count: int) -> Network:
    middles = faces.anchors(faces.OF_POSES)

    def agree(found: Array, real: Array) -> Counted:
        return each(np.linalg.norm(middles[found] - middles[real], axis=1) < _CLOSE)

    return Network(
        f"MediaPipe's pose detector, of {_version('mediapipe')}. {count} photographs with one portrait each, as for "
        f"the face detector (seed 16); {_CALIBRATING} others (seed 17) calibrate. Without labels, a result "
        f"agrees if its likeliest box is within {_CLOSE:.0%} of the picture's width of float's, because several boxes "
        "are on one person.",
        _mediapipe("pose_detection/pose_detection.tflite"),
        faces.scenes(count, SIZE, 16)[0],
        faces.scenes(_CALIBRATING, SIZE, 17)[0],
        "best",
        agree,
        agreed="person at the same place as float",
    )


def _version(package: str) -> str:
    return f"{package} {PACKAGES[package]}"


_OCR = "rapidocr_onnxruntime/models/ch_PP-OCRv4_{}_infer.onnx"
# Title -> a function that creates the network, from the number of pictures of text, and of faces, in the test set.
NETWORKS: Mapping[str, Callable[[int], Network]] = {
    "Digits": _digits,
    "MobileNetV2, hosted uint8 file dequantized": lambda count: _hosted(
        "mobilenet_v2_1.0_224_quant", "by tensor, in quantization-aware training"
    ),
    "MobileNetV2, TF2 file dequantized": lambda count: replace(
        _hosted("tf2_mobilenet_v2_1.0_224_ptq", "by channel"), options=True
    ),
    "MobileNetV2, random weights": _random,
    "PP-OCRv4, recognition": _recognizer(
        "rapidocr-onnxruntime", _OCR.format("rec"), "PP-OCRv4's recognizer of lines, with an attention of two layers"
    ),
    "PP-OCRv4, detection": _detector("rapidocr-onnxruntime", _OCR.format("det"), "PP-OCRv4's detector of lines"),
    "PP-OCRv6, detection": _detector(
        "rapidocr", "rapidocr/models/PP-OCRv6_det_small.onnx", "PP-OCRv6's small detector of lines"
    ),
    "PP-OCRv6, recognition": _recognizer(
        "rapidocr", "rapidocr/models/PP-OCRv6_rec_small.onnx", "PP-OCRv6's small recognizer of lines"
    ),
    "PP-OCR, direction": _turns,
    "MediaPipe, face detection": _faces,
    "MediaPipe, face landmarks": _landmarks(
        "face_landmark/face_landmark.tflite",
        "MediaPipe's face landmarks, of the portrait's face, rotated, mirrored and lit at random",
        lambda count, seed: faces.faces(count, 192, seed),
        192,
    ),
    "MediaPipe, iris": _landmarks(
        "iris_landmark/iris_landmark.tflite",
        "MediaPipe's landmarks of an eye, of both of the portrait's, rotated, mirrored and lit at random",
        lambda count, seed: faces.eyes(count, 64, seed),
        64,
    ),
    "MediaPipe, hand landmarks": _landmarks(
        "hand_landmark/hand_landmark_lite.tflite",
        "MediaPipe's light hand landmarks, on the photographs, which show none",
        lambda count, seed: _photographs(min(count, 68) if seed == 8 else count, seed),
        224,
    ),
    "Magika": _magika,
    "Silero VAD": _silero,
    "MediaPipe, pose detection": _poses,
    "MediaPipe, selfie segmentation": _person,
}
