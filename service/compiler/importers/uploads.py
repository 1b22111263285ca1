"""Packs the files of a model into one file for the upload, if its framework writes several."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from service.compiler.importers import detect
from service.core.errors import InvalidInput


@contextmanager
def upload_of(file: Path, member: str = "", signature: str = "", addition: bytes = b"") -> Iterator[Path]:
    """Yields `file`; or another file, which exists until the block ends.

    This is an archive of `file` and the files that belong to it (an MXNet symbol and its parameters, an OpenVINO graph
    and its weights, or an ONNX model and its external data), or the chosen part of a TFLite file or of a bundle of such
    files.

    Args:
        member: the model in a bundle (`bundles`); "" if it has only one.
        signature: the entry point of a TFLite file; "" for the first one.
        addition: bytes to append to an ONNX file (`published.layers`).

    Raises:
        InvalidInput: one of these files is missing, or `file` has no such member or signature.
        MalformedModel, Unsupported: the part cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        chosen = _model_in(file, member, Path(folder) / "model.tflite")
        if signature:
            chosen = _with_entry(chosen, signature, Path(folder) / "entry.tflite")
        yield _packed(chosen, Path(folder) / "model.zip", addition)


def _packed(file: Path, archive: Path, addition: bytes) -> Path:
    """Returns `file`, or `archive` after packing into it the files that belong to `file`, or writing the extended file
    to it.
    """
    from service.compiler.importers.mxnet import package as mxnet
    from service.compiler.importers.onnx.file import package as onnx
    from service.compiler.importers.openvino.file import package as openvino

    if mxnet.is_symbol(file):
        archive.write_bytes(mxnet.pack_files(file))
        return archive
    if openvino.is_graph(file):
        archive.write_bytes(openvino.pack_files(file))
        return archive
    if onnx.is_model(file) and onnx.pack_files(file, archive, addition):
        return archive
    if not addition:
        return file
    with file.open("rb") as source, archive.open("wb") as target:
        shutil.copyfileobj(source, target)
        target.write(addition)
    return archive


def _model_in(file: Path, member: str, target: Path) -> Path:
    """Returns `file`; or `target`, after writing a member of a bundle into it."""
    from service.compiler.importers import bundles

    if file.is_file() and bundles.is_bundle(file):
        bundles.extract(file, member, target)
        return target
    if member:
        raise InvalidInput(f"{file.name} is not a bundle of models", hint="leave out --member")
    return file


def _with_entry(file: Path, signature: str, target: Path) -> Path:
    """Writes the TFLite file with the signature as its only entry point to `target`."""
    from service.compiler.importers.tflite.file import entries

    with file.open("rb") as opened:
        if detect.detect_format(opened.read(detect.HEAD_BYTES)) != detect.TFLITE:
            raise InvalidInput(
                f"{file.name} is not a TFLite file, so it has no signatures", hint="leave out --signature"
            )
    target.write_bytes(entries.with_entry(file.read_bytes(), signature))
    return target
