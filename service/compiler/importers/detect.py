"""Which model format a file has, by its first bytes. Cheap, and loads no TVM: the API asks on every upload."""

from __future__ import annotations

from service.core.errors import UnsupportedFormat

TFLITE = "tflite"
FORMATS: tuple[str, ...] = (TFLITE,)
HEAD_BYTES = 64  # as much of a file as `detect_format` looks at

# A FlatBuffer has its file identifier after the offset of its root table (flatbuffers.dev/internals).
_IDENTIFIER = slice(4, 8)
_TFLITE_IDENTIFIER = b"TFL3"

# What people upload by mistake -> what to do instead.
_FOREIGN: tuple[tuple[bytes, str, str], ...] = (
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file (Keras weights?)", "convert the model to a quantized .tflite file"),
    (b"PK\x03\x04", "a zip archive (a PyTorch or .keras file?)", "upload the .tflite file itself"),
    (b"\x1f\x8b", "a gzip archive", "unpack it and upload the .tflite file inside"),
    (b"\x80\x02", "a Python pickle (PyTorch weights?)", "convert the model to a quantized .tflite file"),
    (b"\x80\x04", "a Python pickle", "convert the model to a quantized .tflite file"),
    (b"\x93NUMPY", "a NumPy array", "an array is an input of predict, not a model"),
    (b"\x89PNG", "a PNG image", "an image is an input of predict, not a model"),
    (b"\xff\xd8\xff", "a JPEG image", "an image is an input of predict, not a model"),
    (b"<", "an HTML or XML document", "a download page was saved in place of the model; fetch the file itself"),
    (b"version https://git-lfs", "a Git LFS pointer", "fetch the real file with `git lfs pull`"),
)
_HINT = f"Octet reads: {', '.join(FORMATS)}"


def detect_format(head: bytes) -> str:
    """The format of a file that begins with `head` (its first `HEAD_BYTES`, or all of it if it is shorter).

    Raises:
        UnsupportedFormat: it is of no format that Octet reads.
    """
    if head[_IDENTIFIER] == _TFLITE_IDENTIFIER:
        return TFLITE
    if not head:
        raise UnsupportedFormat("the file is empty", hint=_HINT)
    for magic, what, hint in _FOREIGN:
        if head.startswith(magic):
            raise UnsupportedFormat(f"the file is {what}, not a model that Octet reads", hint=hint)
    raise UnsupportedFormat("the file is not a model that Octet reads", hint=_HINT)
