"""Packs the files of a model into one file for the upload, if its framework writes several."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def upload_of(file: Path) -> Iterator[Path]:
    """Yields `file`; or an archive, which exists until the block ends. The archive contains `file` and the files that
    belong to it: an MXNet symbol and its parameters, an OpenVINO graph and its weights, or an ONNX
    model and its external data.

    Raises:
        InvalidInput: one of these files is missing.
    """
    from service.compiler.importers.mxnet import package as mxnet
    from service.compiler.importers.onnx.file import package as onnx
    from service.compiler.importers.openvino.file import package as openvino

    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "model.zip"
        if mxnet.is_symbol(file):
            archive.write_bytes(mxnet.pack_files(file))
            yield archive
        elif openvino.is_graph(file):
            archive.write_bytes(openvino.pack_files(file))
            yield archive
        elif onnx.is_model(file) and onnx.pack_files(file, archive):
            yield archive
        else:
            yield file
