"""Tests of one scan of folders with entries that cannot be read."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from service.api.control.model_folders import scan
from tests.support.published_model import write

NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder below /tmp that all users can read, so that tests of permissions also work as root."""
    with tempfile.TemporaryDirectory(prefix="octet-models-") as path:
        Path(path).chmod(0o755)
        (Path(path) / "good.tflite").write_bytes(b"model")
        yield Path(path)


@contextmanager
def without_root() -> Iterator[None]:
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)


def artifact(path: Path) -> Path:
    path.mkdir()
    (path / "oci-layout").write_text("{}")
    (path / "index.json").write_text("{}")
    return path


def broken(folder: Path) -> dict[str, str]:
    """Returns the entries that cannot be served, after checking that the good file is found."""
    result = scan([folder])
    assert folder / "good.tflite" in result.files
    assert (result.folders, result.unread) == ({folder}, {})
    return {os.fsencode(path.name).decode("latin-1"): reason for path, reason in result.broken.items()}


def test_a_published_model_is_found_and_one_without_a_model_file_is_reported(folder: Path) -> None:
    write(folder / "bge", {"config.json": {}, "onnx/model.onnx": b"x"})
    write(folder / "weights", {"config.json": {}, "model.safetensors": b"x"})
    (reason,) = broken(folder).values()
    assert "contains no ONNX or TFLite file; optimum-cli export" in reason
    assert folder / "bge" in scan([folder]).files
    assert list(scan([folder / "bge"]).files) == [folder / "bge"]


def test_a_change_of_any_file_of_a_published_model_is_noticed(folder: Path) -> None:
    write(folder / "bge", {"config.json": {}, "onnx/model.onnx": b"x"})
    before = scan([folder]).files[folder / "bge"]
    write(folder / "bge", {"tokenizer.json": {}})
    assert scan([folder]).files[folder / "bge"] != before


def test_files_and_artifact_folders_are_found(folder: Path) -> None:
    artifact(folder / "compiled")
    (folder / "notes").mkdir()
    assert broken(folder) == {}
    assert {path.name for path in scan([folder]).files} == {"good.tflite", "compiled"}


def test_an_unreadable_subfolder(folder: Path) -> None:
    (folder / "lost+found").mkdir(mode=0)
    with without_root():
        assert broken(folder) == {"lost+found": "it cannot be read: Permission denied"}


def test_a_link_that_leads_to_itself(folder: Path) -> None:
    (folder / "a.tflite").symlink_to("a.tflite")
    assert broken(folder) == {"a.tflite": "it is a symbolic link that leads back to itself"}


@pytest.mark.parametrize("name", ["oci-layout", "index.json"])
def test_a_folder_whose_file_leads_to_itself(folder: Path, name: str) -> None:
    file = artifact(folder / "loop") / name
    file.unlink()
    file.symlink_to(name)
    assert broken(folder) == {"loop": f"its file {name} is a symbolic link that leads back to itself"}


def test_dangling_links(folder: Path) -> None:
    (folder / "a.tflite").symlink_to("/nowhere/at all")
    index = artifact(folder / "layout") / "index.json"
    index.unlink()
    index.symlink_to("gone")
    assert broken(folder) == {
        "a.tflite": "it is a symbolic link to /nowhere/at all, which does not exist",
        "layout": "its file index.json is a symbolic link to gone, which does not exist",
    }


def test_a_layout_without_an_index(folder: Path) -> None:
    (artifact(folder / "layout") / "index.json").unlink()
    assert broken(folder) == {"layout": "its file index.json is missing"}


def test_a_name_that_is_not_utf_8(folder: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.tflite")).write_bytes(b"model")
    assert broken(folder) == {"café.tflite": "its name is not UTF-8; rename it"}


def test_entries_that_are_neither_files_nor_folders(folder: Path) -> None:
    os.mkfifo(folder / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        (folder / "null").symlink_to("/dev/null")
        assert broken(folder) == {
            "fifo": "it is a FIFO, not a model file",
            "null": "it is a character device, not a model file",
            "socket": "it is a socket, not a model file",
        }


def test_hidden_entries_are_ignored(folder: Path) -> None:
    (folder / ".loop").symlink_to(".loop")
    assert broken(folder) == {}


def test_an_unreadable_folder_is_not_an_empty_one(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0)
    loop = folder / "loop"
    loop.symlink_to("loop")
    with without_root():
        result = scan([closed, folder / "gone", loop, folder])
    assert result.unread == {
        closed: "it cannot be read: Permission denied",
        folder / "gone": "it does not exist",
        loop: "it is a symbolic link that leads back to itself",
    }
    assert result.folders == {folder}
    assert not result.would_show(closed / "a.tflite")
