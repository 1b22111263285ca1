"""Tests of the files of a published model, which may be hostile."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.compiler.importers.published import files
from service.compiler.importers.published.files import Folder
from service.core.errors import InvalidInput
from tests.support.published_model import write


def test_the_files_are_listed_without_hidden_ones(tmp_path: Path) -> None:
    folder = write(tmp_path, {"a.json": {}, "onnx/model.onnx": b"", ".git/config": "", ".hidden": ""})
    assert folder.names == ["a.json", "onnx/model.onnx"]


@pytest.mark.parametrize("name", ["tokenizer.json", "onnx"])
def test_a_link_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path / "model", {"config.json": {}})
    (tmp_path / "secret").mkdir()
    (tmp_path / "model" / name).symlink_to(tmp_path / "secret")
    with pytest.raises(InvalidInput, match="leaves the folder"):
        Folder(tmp_path / "model")


def test_links_of_the_cache_of_hugging_face_are_followed(tmp_path: Path) -> None:
    root = tmp_path / "models--org--name"
    write(root / "blobs", {"abc": {"model_type": "bert"}})
    snapshot = root / "snapshots" / "main"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").symlink_to(Path("../../blobs/abc"))
    assert Folder(snapshot).json("config.json") == {"model_type": "bert"}
    (snapshot / "other.json").symlink_to(tmp_path)
    with pytest.raises(InvalidInput):
        Folder(snapshot)


@pytest.mark.parametrize("content", ["[" * 100_000, "{", "[1]", b"\xff\xfe", "1" * 5000])
def test_json_that_is_not_an_object_is_refused(tmp_path: Path, content: str | bytes) -> None:
    with pytest.raises(InvalidInput, match=r"config\.json"):
        write(tmp_path, {"config.json": content}).json("config.json")


def test_a_missing_file_is_empty(tmp_path: Path) -> None:
    assert write(tmp_path, {}).json("config.json") == {}


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path, {"config.json": {"a": 1}, "b": ""})
    monkeypatch.setattr(files, "MAX_JSON_BYTES", 3)
    with pytest.raises(InvalidInput, match="more than 3 bytes"):
        folder.json("config.json")
    monkeypatch.setattr(files, "MAX_FILES", 1)
    with pytest.raises(InvalidInput, match="more than 1 files"):
        Folder(tmp_path)
