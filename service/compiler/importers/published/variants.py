"""The variants of a published model: the same network in several precisions, of which one is served.

The names are those that Optimum, sentence-transformers and transformers.js give: `model.onnx`, `model_quantized.onnx`,
`model_qint8_avx512_vnni.onnx`, `model_q4f16.onnx`, `openvino_model_qint8_quantized.xml`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from service.compiler.importers.published.files import Folder
from service.core.errors import InvalidInput
from service.core.printable import printable
from service.core.target import Target

_SUFFIXES = (".onnx", ".tflite", ".xml")
FOLDERS = ("", "onnx", "tflite", "openvino")  # where publishers put model files
_OPENVINO = "openvino_"  # the beginning of the names of OpenVINO's files; others with .xml are tokenizers
_STEM = "model"
# The precision of a file, by the parts of its name. The first match counts.
_PRECISIONS: Sequence[tuple[frozenset[str], str]] = (
    (frozenset({"q1", "q2", "q1f16", "q2f16"}), "1-bit or 2-bit weights"),
    (frozenset({"q4f16", "bnb4f16"}), "4-bit weights, float16"),
    (frozenset({"q4", "bnb4", "int4", "uint4", "4bit"}), "4-bit weights"),
    (frozenset({"int8", "uint8", "qint8", "quint8", "q8", "quantized", "quant", "8bit"}), "8-bit"),
    (frozenset({"fp16", "float16", "f16", "o4"}), "float16"),  # O4 is the level of Optimum that converts to float16
    (frozenset({"fp32", "float32", "f32", "o1", "o2", "o3", "opt", "optimized"}), "float32"),
)
_UNNAMED = "not in its name"
_ORDER = ("8-bit", "4-bit weights", "4-bit weights, float16", "float32", _UNNAMED, "float16", "1-bit or 2-bit weights")
_Preference = tuple[str, Callable[[Target], bool]]


def _is_arm(target: Target) -> bool:
    return target.architecture == "aarch64"


def _has_avx512(target: Target) -> bool:
    return "avx512f" in target.features


def _has_vnni(target: Target) -> bool:
    return bool({"avx512_vnni", "avx_vnni"} & target.features)


# Names of 8-bit variants that were made for one instruction set, best first, and the targets that they suit.
_MADE_FOR: Sequence[_Preference] = (
    ("arm64", _is_arm),
    ("avx512_vnni", _has_vnni),
    ("avx512", _has_avx512),
    ("avx2", lambda target: target.architecture == "x86_64"),
)


@dataclass(frozen=True)
class Variant:
    """A model file of a folder.

    Attributes:
        file: the file's name, relative to the folder.
        name: what `--variant` takes: the suffix of the file's name, such as `quantized`, or `model` without a suffix.
            For a file that is not called `model…`, the whole name without its extension.
        precision: such as `8-bit` or `float32`, by convention of the names.
        size_bytes: the size of the file and its external data.
    """

    file: str
    name: str
    precision: str
    size_bytes: int

    @property
    def is_whole(self) -> bool:
        """True if the file contains the whole model, and not a part such as `text_model` or `encoder_model`."""
        return f"_{_STEM}" not in PurePosixPath(self.file).stem.removeprefix(_OPENVINO)


def variants_in(folder: Folder) -> list[Variant]:
    """Returns the variants in a folder, in the order of their names."""
    return [_variant(folder, name) for name in folder.names if is_model(name)]


def choose(folder: Folder, name: str | None, target: Target | None) -> Variant:
    """Returns the variant called `name`; or the best one.

    The order of preference is: 8-bit, 4-bit weights, 4-bit weights with float16, float32, unknown, float16. Of several
    8-bit variants, one that was made for the instruction set of `target` comes first, then those of no instruction set
    (`int8`, `quantized`, `uint8`), then the others. If the names do not decide, other files come before those of
    OpenVINO, and then the smaller file comes first.

    Args:
        name: the name of a variant, or of its file.
        target: the target that the model will be compiled for; None if it is not determined yet.

    Raises:
        InvalidInput: the folder contains no such variant, or only parts of a model.
    """
    found = variants_in(folder)
    if not found:
        raise InvalidInput(f"{printable(str(folder.root))} contains no ONNX or TFLite file", hint=_remedy(folder))
    if name is not None:
        named = [each for each in found if name in (each.name, each.file, PurePosixPath(each.file).name)]
        if not named:
            raise InvalidInput(
                f"{printable(str(folder.root))} contains no variant {printable(name)!r}", hint=_listing(found)
            )
        return named[0]
    whole = [each for each in found if each.is_whole]
    if not whole:
        raise InvalidInput(
            f"{printable(str(folder.root))} contains a model in parts, each in a file of its own",
            hint=f"--variant names one of them: {_listing(found)}",
        )
    return min(whole, key=lambda each: (_rank(each, target), _is_openvino(each.file), each.size_bytes, each.file))


def _rank(variant: Variant, target: Target | None) -> tuple[int, int]:
    precision = _ORDER.index(variant.precision)
    if variant.precision != "8-bit":
        return precision, 0
    made_for = next((suits for mark, suits in _MADE_FOR if mark in variant.name.lower()), None)
    if made_for is None:
        return precision, len(_MADE_FOR)
    if target is None or not made_for(target):
        return precision, len(_MADE_FOR) + 1
    return precision, [suits for _, suits in _MADE_FOR].index(made_for)


def _variant(folder: Folder, file: str) -> Variant:
    stem = PurePosixPath(file).stem
    suffix = None if _is_openvino(file) else re.fullmatch(rf"{_STEM}(?:[_.-](.+))?", stem)
    name = stem if suffix is None else suffix.group(1) or _STEM
    return Variant(file, name, _precision(stem), _size_bytes(folder, file))


def _precision(stem: str) -> str:
    parts = set(re.split(r"[_.-]", stem.lower()))
    found = next((precision for marks, precision in _PRECISIONS if marks & parts), None)
    return found or ("float32" if stem in (_STEM, f"{_OPENVINO}{_STEM}") else _UNNAMED)


def files_of(folder: Folder, file: str) -> list[str]:
    """Returns a model file and the files with its weights: `model.onnx_data`, `model.onnx.data`, or `….bin` of
    OpenVINO.
    """
    weights = file.removesuffix(".xml") + ".bin" if _is_openvino(file) else file
    stems = (f"{file}_data", f"{file}.data")
    return [name for name in folder.names if name in (file, weights) or name.startswith(stems)]


def _size_bytes(folder: Folder, file: str) -> int:
    return sum(map(folder.size_bytes, files_of(folder, file)))


def _is_openvino(file: str) -> bool:
    return file.endswith(".xml")


def is_model(name: str) -> bool:
    """Returns true if a file of this name is a variant."""
    path = PurePosixPath(name)
    if _is_openvino(name) and not path.stem.startswith(f"{_OPENVINO}{_STEM}"):
        return False
    return path.suffix in _SUFFIXES and str(path.parent).removeprefix(".") in FOLDERS


def _listing(variants: Iterable[Variant]) -> str:
    return ", ".join(printable(each.name) for each in variants)


def _remedy(folder: Folder) -> str:
    if any(name.endswith((".safetensors", ".bin", ".pt", ".pth", ".h5", ".msgpack")) for name in folder.names):
        return "optimum-cli export onnx --model DIR OUTPUT writes an ONNX file from these weights"
    return "name the folder of a model, or a model file"
