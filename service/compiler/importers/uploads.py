"""Packs the files of a model into the one file that is uploaded, for frameworks that write several."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def upload_of(file: Path) -> Iterator[Path]:
    """Yields `file`; or, until the block ends, an archive of it and the files that belong to it: an MXNet symbol and
    its parameters, or an ONNX model and its external data.

    Raises:
        InvalidInput: a file that belongs to it is missing.
    """
    from service.compiler.importers.mxnet import package as mxnet
    from service.compiler.importers.onnx import package as onnx

    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "model.zip"
        if mxnet.is_symbol(file):
            archive.write_bytes(mxnet.pack_files(file))
            yield archive
        elif onnx.is_model(file) and onnx.pack_files(file, archive):
            yield archive
        else:
            yield file
