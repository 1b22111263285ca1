"""Detects a file's model format by its content. This is cheap and does not load TVM, because the API does it for every
upload.

A zip archive lists its contents only at its end, so there are two functions. `detect_format` reads the first bytes, and
can refuse an upload before all of it has arrived. `format_of` reads the whole file and returns its exact format.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

from service.compiler.importers.zip_names import has_models, names_of
from service.core.errors import InvalidInput, UnsupportedFormat

TFLITE = "tflite"
ONNX = "onnx"
TORCHSCRIPT = "torchscript"
PT2 = "pt2"
MXNET = "mxnet"
OPENVINO = "openvino"
EXECUTORCH = "executorch"
QNN = "qnn"
FORMATS: tuple[str, ...] = (TFLITE, ONNX, TORCHSCRIPT, PT2, MXNET, OPENVINO, EXECUTORCH, QNN)
ZIP = "zip"  # a format that is stored in a zip archive
HEAD_BYTES = 64  # the number of bytes that `detect_format` needs

# In a FlatBuffer, the file identifier follows the offset of the root table (flatbuffers.dev/internals).
_IDENTIFIER = slice(4, 8)
_TFLITE_IDENTIFIER = b"TFL3"
_EXECUTORCH_IDENTIFIER = b"ET"  # two digits follow
_QNN_HEAD = b"// qnn 1\n"
_ZIP_MAGIC = b"PK\x03\x04"

_MXNET_HINT = "push NAME-symbol.json with NAME-0000.params beside it, or a zip archive of the two"
_OPENVINO_HINT = "push NAME.xml with NAME.bin beside it, or a zip archive of the two"
_SAVE_PROGRAM = "save the program: torch.jit.save(torch.jit.trace(model, example), file)"

# A protobuf file has no identifier. But every writer stores the fields of a message in the order of their numbers. An
# ONNX file therefore begins with the first field of ModelProto (onnx.proto), which is `ir_version`, a small number.
# Other fields of ModelProto follow.
_ONNX_VERSION_TAG = 0x08
_ONNX_VERSIONS = range(3, 64)
_ONNX_TEXTS = {0x12, 0x1A, 0x22, 0x32}  # producer_name, producer_version, domain, doc_string
_ONNX_MODEL_VERSION, _ONNX_GRAPH, _ONNX_OPSET = 0x28, 0x3A, 0x42

# Files that people upload by mistake: first bytes, name of the format, and the right way to upload the model.
_FOREIGN: tuple[tuple[bytes, str, str], ...] = (
    (
        b"LITERTLM",
        "a bundle of TFLite models",
        "compile or push one of them: octet push FILE --member NAME; without --member, it lists them",
    ),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file (Keras weights?)", "convert the model to a quantized .tflite file"),
    (b"\x12\x01\0\0\0\0\0\0", "MXNet parameters without their symbol", _MXNET_HINT),
    (b"oci-layout\0", "a compiled artifact", "octet push DIR, or PUT /api/v1/artifacts?name=NAME"),
    (b"\x1f\x8b", "a gzip archive", "unpack it and upload the .tflite file inside"),
    (
        b"\x80\x02",
        "a Python pickle (PyTorch weights?)",
        "save the program: torch.jit.save(torch.jit.trace(model, example), file)",
    ),
    (b"\x80\x04", "a Python pickle", "convert the model to a quantized .tflite file"),
    (b"\x93NUMPY", "a NumPy array", "an array is an input of predict, not a model"),
    (b"\x89PNG", "a PNG image", "an image is an input of predict, not a model"),
    (b"\xff\xd8\xff", "a JPEG image", "an image is an input of predict, not a model"),
    (b"<", "an HTML or XML document", "a download page was saved in place of the model; fetch the file itself"),
    (b"version https://git-lfs", "a Git LFS pointer", "fetch the real file with `git lfs pull`"),
)
_HINT = f"Octet reads: {', '.join(FORMATS)}"
# Formats of dialects: name -> the bytes with which files may begin.
_ADDED: dict[str, tuple[bytes, ...]] = {}


def add_format(name: str, heads: Sequence[bytes]) -> None:
    """Adds a format of a dialect. Its files begin with one of `heads`, and are none of Octet's own formats.

    Raises:
        InvalidInput: the name is taken, or a head is empty or longer than `HEAD_BYTES`.
    """
    if name in FORMATS or name == ZIP:
        raise InvalidInput(f"Octet itself has a format {name}")
    if not heads or not all(0 < len(head) <= HEAD_BYTES for head in heads):
        raise InvalidInput(f"the files of the format {name} must begin with 1 to {HEAD_BYTES} known bytes")
    _ADDED[name] = tuple(heads)


def detect_format(head: bytes) -> str:
    """Returns the format of a file that begins with `head`, or `ZIP` for a zip archive. `head` is the first
    `HEAD_BYTES`, or all of a shorter file.

    Raises:
        UnsupportedFormat: Octet does not read the file's format.
    """
    if head[_IDENTIFIER] == _TFLITE_IDENTIFIER:
        return TFLITE
    if head.startswith(_ZIP_MAGIC):
        return ZIP
    if head.startswith(_QNN_HEAD):
        return QNN
    if _is_onnx(head):
        return ONNX
    for name, heads in _ADDED.items():
        if head.startswith(heads):
            return name
    if head[_IDENTIFIER][:2] == _EXECUTORCH_IDENTIFIER and head[_IDENTIFIER][2:].isdigit():
        return EXECUTORCH
    if not head:
        raise UnsupportedFormat("the file is empty", hint=_HINT)
    if b"<net " in head:
        raise UnsupportedFormat("the file is an OpenVINO graph without its weights", hint=_OPENVINO_HINT)
    for magic, what, hint in _FOREIGN:
        if head.startswith(magic):
            raise UnsupportedFormat(f"the file is {what}, not a model that Octet reads", hint=hint)
    if head.lstrip().startswith(b"{") and b'"nodes"' in head:
        raise UnsupportedFormat("the file is an MXNet symbol without its parameters", hint=_MXNET_HINT)
    raise UnsupportedFormat("the file is not a model that Octet reads", hint=_HINT)


def format_of(file: BinaryIO) -> str:
    """Returns the format of `file`, a file object that supports seeking.

    Raises:
        UnsupportedFormat: Octet does not read the file's format.
    """
    found = detect_format(file.read(HEAD_BYTES))
    return _format_of_archive(names_of(file)) if found == ZIP else found


def _format_of_archive(names: frozenset[str] | None) -> str:
    """Returns the format of a zip archive, given the names of its records relative to their folder
    (caffe2/serialize/inline_container.cc).
    """
    if names is None:
        raise UnsupportedFormat("the file is a zip archive whose end is damaged", hint="download the file again")
    inside = {name.partition("/")[2] for name in names}
    if "data.pkl" in inside and any(name.startswith("code/") for name in inside):
        return TORCHSCRIPT
    if any(name.startswith("models/") and name.endswith(".json") for name in inside):
        return PT2
    if any(name.endswith("-symbol.json") for name in names) and any(name.endswith(".params") for name in names):
        return MXNET
    if sum(name.endswith(".xml") for name in names) == 1 and all(name.endswith((".xml", ".bin")) for name in names):
        return OPENVINO
    if sum(name.endswith(".onnx") for name in names) == 1:
        return ONNX
    if has_models(names):
        raise UnsupportedFormat(
            "the file is a bundle of TFLite models",
            hint="compile or push one of them: octet push FILE --member NAME; without --member, it lists them",
        )
    what, hint = "a zip archive", "unpack it and upload the model inside"
    if "data.pkl" in inside:
        what = "a state_dict or another object that torch.save wrote, not a program"
        hint = _SAVE_PROGRAM
    elif "serialized_exported_program.json" in names | inside:
        what = "an exported program as PyTorch wrote them before 2.8"
        hint = "load and save it again: torch.export.save(torch.export.load(file), file)"
    elif "archive_format" in inside:
        what = "an archive of PyTorch (.pt2) without an exported program"
        hint = "save one: torch.export.save(torch.export.export(model, example), file)"
    elif "config.json" in names:
        what, hint = "a .keras archive", "convert the model to a quantized .tflite file"
    raise UnsupportedFormat(f"the file is {what}", hint=hint)


def _is_onnx(head: bytes) -> bool:
    """Returns true if `head` may be the beginning of an ONNX file. Checks all fields that precede the graph."""
    if len(head) < 4 or head[0] != _ONNX_VERSION_TAG or head[1] not in _ONNX_VERSIONS:
        return False
    position, last = 2, _ONNX_VERSION_TAG
    while position < len(head):
        tag = head[position]
        if tag in (_ONNX_GRAPH, _ONNX_OPSET):
            return True
        if tag <= last or (tag not in _ONNX_TEXTS and tag != _ONNX_MODEL_VERSION):
            return False
        last = tag
        value, position = _number(head, position + 1)
        if tag in _ONNX_TEXTS:
            text, position = head[position : position + value], position + value
            if any(byte < 0x20 and byte not in b"\t\n\r" for byte in text):
                return False
    return True


def _number(head: bytes, position: int) -> tuple[int, int]:
    """Returns a protobuf number and the position after it. If the bytes end before the number does, returns the number
    that the existing bytes contain.
    """
    value = 0
    for index, byte in enumerate(head[position : position + 10]):
        value |= (byte & 0x7F) << (7 * index)
        position += 1
        if byte < 0x80:
            break
    return value, position
