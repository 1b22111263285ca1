"""Zip archives are read within limits, and hostile ones are refused."""

from __future__ import annotations

import contextlib
import io
import struct
import zipfile
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.compiler.importers.archive import Archive
from service.core.errors import MalformedModel


def zipped(*records: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in records:
            archive.writestr(name, data)
    return buffer.getvalue()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_records_are_read_by_name(method: int) -> None:
    archive = Archive(zipped(("a/b.txt", b"one"), ("c", b"two"), method=method))
    assert list(archive) == ["a/b.txt", "c"]
    assert archive.text("a/b.txt") == "one"
    assert "c" in archive


def test_names_may_be_inside_one_folder() -> None:
    assert list(Archive(zipped(("model/data.pkl", b""), ("model/x/y", b"")), in_folder=True)) == ["data.pkl", "x/y"]
    with pytest.raises(MalformedModel, match="outside of its folder"):
        Archive(zipped(("model/data.pkl", b""), ("other/x", b"")), in_folder=True)
    with pytest.raises(MalformedModel, match="outside of its folder"):
        Archive(zipped(("model", b"")), in_folder=True)


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "a//b", "./a", "c:\\x", "a\nb", "folder/"])
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(MalformedModel):
        Archive(zipped((name, b"")))


def test_links_encryption_and_other_compression_are_refused() -> None:
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    with pytest.raises(MalformedModel, match="link"):
        Archive(zipped((link, b"/etc/passwd")))
    with pytest.raises(MalformedModel, match="unknown compression"):
        Archive(zipped(("a", b"x"), method=zipfile.ZIP_LZMA))
    with pytest.raises(MalformedModel, match="encryption"):
        Archive(edited(zipped(("a", b"x")), 8, struct.pack("<H", 1)))


def edited(data: bytes, offset: int, value: bytes) -> bytes:
    """Returns `data` with one field changed in its only central directory entry."""
    at = data.rindex(b"PK\x01\x02") + offset
    return data[:at] + value + data[at + len(value) :]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_repeated_name_is_refused() -> None:
    with pytest.raises(MalformedModel, match="twice"):
        Archive(zipped(("a", b"1"), ("a", b"2")))


def test_bombs_are_refused_before_anything_is_unpacked() -> None:
    bomb = zipped(("a", bytes(1 << 26)), method=zipfile.ZIP_DEFLATED)
    assert len(bomb) < 1 << 17
    with pytest.raises(MalformedModel, match="record 'a' of 67108864 bytes"):
        Archive(bomb)
    with pytest.raises(MalformedModel, match="unpacks to"):
        Archive(zipped(("a", bytes(100)), ("b", bytes(100)), method=zipfile.ZIP_DEFLATED), most_deflated_bytes=150)


def test_a_record_longer_than_its_declared_size_is_cut_off() -> None:
    lying = edited(zipped(("a", bytes(1000)), method=zipfile.ZIP_DEFLATED), 24, struct.pack("<I", 10))
    with pytest.raises(MalformedModel, match="damaged: Bad CRC-32"):
        Archive(lying).read("a")
    agreeing = edited(lying, 16, struct.pack("<I", zlib.crc32(bytes(10))))
    assert Archive(agreeing).read("a") == bytes(10)


def test_stored_sizes_must_fit_the_file() -> None:
    data = zipped(("a", b"xyz"))
    with pytest.raises(MalformedModel, match="two different sizes"):
        Archive(edited(data, 24, struct.pack("<I", 4)))
    both = struct.pack("<II", 1 << 30, 1 << 30)
    with pytest.raises(MalformedModel, match="bytes of stored records"):
        Archive(edited(data, 20, both))


def test_missing_records_and_records_that_are_not_text_are_named() -> None:
    archive = Archive(zipped(("a", b"\xff")))
    with pytest.raises(MalformedModel, match="does not contain the record 'b'"):
        archive.read("b")
    with pytest.raises(MalformedModel, match="not UTF-8"):
        archive.text("a")


@given(st.data())
def test_damage_is_refused_or_harmless(data: st.DataObject) -> None:
    good = bytearray(zipped(("a", b"some text " * 9), ("b", b"more"), method=zipfile.ZIP_DEFLATED))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MalformedModel):
        archive = Archive(bytes(good[: data.draw(st.integers(0, len(good)))]))
        for name in archive:
            archive.read(name)
