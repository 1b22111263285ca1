"""The one file that a model is uploaded as, where its framework writes two."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def upload_of(file: Path) -> Iterator[Path]:
    """`file`; or, where it is an MXNet symbol, an archive of it and its parameters, as long as the block runs.

    Raises:
        InvalidInput: a symbol lacks its parameters.
    """
    from service.compiler.importers.mxnet.package import is_symbol, pack_files

    if not is_symbol(file):
        yield file
        return
    packed = pack_files(file)
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "model.zip"
        archive.write_bytes(packed)
        yield archive
