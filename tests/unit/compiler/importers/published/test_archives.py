"""Tests of zip archives of published models, some of them hostile."""

from __future__ import annotations

import resource
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from service.compiler.importers.published.archives import ArchivedFolder, is_folder_archive, pack_folder
from service.compiler.importers.published.files import Folder
from service.core.errors import InvalidInput, MalformedModel
from tests.support.published_model import write

FILES = {
    "config.json": b"{}",
    "onnx/model.onnx": b"model",
    "onnx/weights.bin": b"weights",
    "onnx/model_int8.onnx": b"8",
}


def pack(path: Path, files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def opened(root: Path, files: Mapping[str, bytes], most_bytes: int = 1000) -> ArchivedFolder:
    scratch = root / "scratch"
    scratch.mkdir()
    return ArchivedFolder(pack(root / "x.zip", files), scratch, most_bytes)


@pytest.mark.parametrize("prefix", ["", "bge-small/"])
def test_the_files_are_those_of_the_folder(tmp_path: Path, prefix: str) -> None:
    folder = opened(tmp_path, {prefix + name: data for name, data in FILES.items()} | {"__MACOSX/a": b"", ".x/y": b""})
    assert folder.names == sorted(FILES)
    assert folder.json("config.json") == {}
    assert folder.size_bytes("onnx/model.onnx") == 5


def test_a_model_is_unpacked_with_the_files_beside_it_and_without_other_variants(tmp_path: Path) -> None:
    folder = opened(tmp_path, FILES)
    assert folder.path("onnx/model.onnx").read_bytes() == b"model"
    assert sorted(path.name for path in (tmp_path / "scratch" / "onnx").iterdir()) == ["model.onnx", "weights.bin"]
    assert folder.path("onnx/model.onnx").read_bytes() == b"model"


def test_a_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="does not contain"):
        opened(tmp_path, FILES).path("onnx/other.onnx")


@pytest.mark.parametrize("name", ["../config.json", "/config.json", "a/../config.json", "a\\..\\x", "C:x"])
def test_a_name_outside_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(MalformedModel):
        opened(tmp_path, {"config.json": b"{}", name: b""})


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedModel, match="too large"):
        opened(tmp_path, {"config.json": bytes(600), "onnx/model.onnx": bytes(600)})


def test_a_link_is_refused(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("config.json")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(MalformedModel, match="link"):
        ArchivedFolder(tmp_path / "x.zip", tmp_path, 1000)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_duplicate_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("config.json", "[]")
    with pytest.raises(MalformedModel, match="twice"):
        ArchivedFolder(tmp_path / "x.zip", tmp_path, 1000)


@pytest.mark.parametrize("declared", [10, 1000])
def test_a_file_with_another_size_than_declared_is_refused(tmp_path: Path, declared: int) -> None:
    data = pack(tmp_path / "x.zip", {"onnx/model.onnx": bytes(100)}).read_bytes()
    (tmp_path / "x.zip").write_bytes(data.replace(struct.pack("<I", 100), struct.pack("<I", declared)))
    folder = ArchivedFolder(tmp_path / "x.zip", tmp_path, 2000)
    with pytest.raises(MalformedModel):
        folder.path("onnx/model.onnx")


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="more than"):
        opened(tmp_path, {f"{index}.txt": b"" for index in range(10_001)})


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["config.json", "model.onnx"], True),
        (["bge/config.json", "bge/onnx/model.onnx"], True),
        (["model.onnx", "model_int8.onnx"], True),
        (["model.onnx", "model.onnx.data"], False),
        (["a-symbol.json", "a-0000.params"], False),
        (["a.tflite", "b.tflite"], False),
    ],
)
def test_the_archive_of_a_published_model_is_recognized(tmp_path: Path, names: list[str], expected: bool) -> None:
    assert is_folder_archive(pack(tmp_path / "x.zip", dict.fromkeys(names, b""))) is expected


@pytest.mark.parametrize("data", [b"", b"PK", b"PK\x03\x04", b"model"])
def test_another_file_is_not_such_an_archive(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.zip").write_bytes(data)
    assert not is_folder_archive(tmp_path / "x.zip")


def test_a_packed_folder_depends_on_names_and_bytes_only(tmp_path: Path) -> None:
    for name in "ab":
        folder = write(tmp_path / name, FILES)
        pack_folder(folder, folder.names[:2], tmp_path / f"{name}.zip", {"tokenizer.json": b"{}"})
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    packed = ArchivedFolder(tmp_path / "a.zip", scratch, 0)
    assert packed.names == sorted([*Folder(tmp_path / "a").names[:2], "tokenizer.json"])


@pytest.mark.slow
def test_weights_beyond_the_32_bits_of_zip_are_copied_in_pieces(tmp_path: Path) -> None:
    size = (2 << 30) + (1 << 20)
    source, archive = tmp_path / "model", tmp_path / "model.zip"
    write(source, {"config.json": {}, "model.onnx": b""})
    with (source / "model.onnx_data").open("wb") as weights:
        weights.truncate(size)  # a sparse file
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        pack_folder(Folder(source), ["config.json", "model.onnx", "model.onnx_data"], archive, {})
        folder = ArchivedFolder(archive, tmp_path, 4 << 30)
        assert folder.size_bytes("model.onnx_data") == size
        assert folder.path("model.onnx").with_name("model.onnx_data").stat().st_size == size
    finally:
        for each in (archive, tmp_path / "model.onnx_data"):
            each.unlink(missing_ok=True)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # kilobytes
