"""Two files are packed into one upload, which always has the same bytes. Unpacking accepts only these two files."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from service.compiler.importers.detect import MXNET, detect_format, format_of
from service.compiler.importers.mxnet.package import is_symbol, pack, pack_files, unpack
from service.core.errors import InvalidInput, MalformedModel, UnsupportedFormat
from tests.support.mxnet_models import FOLDER, packed


def test_a_packed_upload_is_detected_and_unpacked() -> None:
    data = pack(b"{}", b"params")
    assert unpack(data) == (b"{}", b"params")
    assert format_of(io.BytesIO(data)) == MXNET
    assert pack(b"{}", b"params") == data


def test_a_zip_file_is_an_upload_too() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a_net_with_a_name_that_is_rather_long_v1_int8-0003.params", b"params")
        archive.writestr("a_net_with_a_name_that_is_rather_long_v1_int8-symbol.json", b"{}")
    buffer.seek(0)
    assert format_of(buffer) == MXNET
    assert unpack(buffer.getvalue()) == (b"{}", b"params")


@pytest.mark.parametrize(
    "names", [["a-symbol.json"], ["a-symbol.json", "b-symbol.json"], ["a-symbol.json", "a", "a.params"]]
)
def test_an_archive_with_other_files_is_refused(names: list[str]) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, b"x")
    with pytest.raises(MalformedModel, match=r"not one NAME-symbol\.json and one") as caught:
        unpack(buffer.getvalue())
    assert caught.value.hint


@pytest.mark.parametrize(
    ("head", "what"),
    [(b'{\n  "nodes": [', "symbol without its parameters"), (b"\x12\x01" + bytes(14), "without their symbol")],
)
def test_a_single_file_is_refused_and_named(head: bytes, what: str) -> None:
    with pytest.raises(UnsupportedFormat, match=what):
        detect_format(head)


def test_parameters_are_found_beside_the_symbol(tmp_path: Path) -> None:
    symbol = tmp_path / "net-symbol.json"
    symbol.write_text("{}")
    assert is_symbol(symbol)
    with pytest.raises(InvalidInput, match="needs its parameters beside it"):
        pack_files(symbol)
    (tmp_path / "net-0000.params").write_bytes(b"0")
    (tmp_path / "net2-0000.params").write_bytes(b"2")
    assert unpack(pack_files(symbol)) == (b"{}", b"0")
    (tmp_path / "net-0001.params").write_bytes(b"1")
    with pytest.raises(InvalidInput, match=r"found: net-0000\.params, net-0001\.params"):
        pack_files(symbol)


def test_a_fixture_is_packed_unchanged() -> None:
    symbol, params = unpack(pack_files(FOLDER / "sg_residual-symbol.json"))
    assert symbol == (FOLDER / "sg_residual-symbol.json").read_bytes()
    assert params == unpack(packed("sg_residual"))[1]
