"""The one file that a model is uploaded as, where its framework writes several."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def upload_of(file: Path) -> Iterator[Path]:
    """`file`; or, as long as the block runs, an archive of it and what belongs to it: an MXNet symbol and its
    parameters, an ONNX model and its external data.

    Raises:
        InvalidInput: what belongs to it is not there.
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
