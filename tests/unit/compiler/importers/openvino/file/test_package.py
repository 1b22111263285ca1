"""The two files of a model become one archive."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from service.compiler.importers.detect import detect_format, format_of
from service.compiler.importers.openvino.file.package import pack, pack_files, unpack
from service.compiler.importers.uploads import upload_of
from service.core.errors import InvalidInput, MalformedModel, UnsupportedFormat


def test_both_files_are_packed(tmp_path: Path) -> None:
    (tmp_path / "model.xml").write_bytes(b"<net/>")
    (tmp_path / "model.bin").write_bytes(b"1234")
    packed = pack_files(tmp_path / "model.xml")
    assert unpack(packed) == (b"<net/>", b"1234")
    assert format_of(io.BytesIO(packed)) == "openvino"
    with upload_of(tmp_path / "model.xml") as archive:
        assert archive.read_bytes() == packed == pack(b"<net/>", b"1234")


def test_missing_weights_are_named(tmp_path: Path) -> None:
    (tmp_path / "model.xml").write_bytes(b"<net/>")
    with pytest.raises(InvalidInput, match=r"needs its weights beside it, the file model\.bin"):
        pack_files(tmp_path / "model.xml")


def test_a_graph_without_weights_is_not_a_model() -> None:
    with pytest.raises(UnsupportedFormat, match="OpenVINO graph without its weights") as caught:
        detect_format(b'<?xml version="1.0"?>\n<net name="model" version="11">\n')
    assert "NAME.bin" in (caught.value.hint or "")


def test_other_files_in_the_archive_are_refused() -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name in ("a.xml", "b.xml", "a.bin"):
            archive.writestr(name, b"")
    with pytest.raises(MalformedModel, match=r"not one NAME\.xml and one NAME\.bin"):
        unpack(data.getvalue())
