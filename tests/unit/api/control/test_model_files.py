"""Tests of `octet serve --models` while files are added, changed and removed. Nothing is compiled."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.api.control.model_files import ModelFiles
from service.core.errors import DatabaseBusy
from service.core.models.text import Pooling
from tests.support.control_plane import MODEL, ControlPlane, control_plane
from tests.support.published_model import encoder, sentence_transformer, write

OTHER = MODEL + b"!"
ONNX = Path(__file__).parents[3] / "fixtures" / "onnx" / "bert.dynamic.onnx"
LONG_AGO = 1_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with control_plane(tmp_path / "data") as plane:
        yield plane


def put(path: Path, data: bytes = MODEL, at_s: float = LONG_AGO) -> Path:
    path.write_bytes(data)
    os.utime(path, (at_s, at_s))
    return path


def follow(files: ModelFiles) -> bool:
    return asyncio.run(files.follow())


def served(plane: ControlPlane) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for each in plane.services.models.all_versions():
        found.setdefault(each.name, []).append(each.number)
    return found


def broken(plane: ControlPlane) -> dict[str, str]:
    listed = plane.client.get("/api/v1/models").json()["broken_files"]
    return {each["file"]: each["reason"] for each in listed}


def test_each_file_is_a_model_of_its_name(plane: ControlPlane, folder: Path) -> None:
    put(folder / "Digits v2.tflite")
    put(folder / "other.tflite", OTHER)
    put(folder / ".hidden.tflite")
    assert follow(ModelFiles(plane.services, [folder]))
    assert served(plane) == {"digits-v2": [1], "other": [1]}
    assert {build["model"] for build in plane.client.get("/api/v1/builds").json()["builds"]} == {"digits-v2", "other"}
    entry = plane.client.get("/api/v1/audit").json()["entries"][0]
    assert (entry["action"], entry["who"].split(":")[0]) == ("push", "local")


def test_a_published_model_is_served_with_what_its_folder_defines(plane: ControlPlane, folder: Path) -> None:
    model = folder / "bge-small-v1.5"
    write(model, sentence_transformer() | {"onnx/model.onnx": encoder({"y": 3})})
    for path in model.rglob("*"):
        os.utime(path, (LONG_AGO, LONG_AGO))
    files = ModelFiles(plane.services, [folder])
    follow(files)
    assert served(plane)["bge-small-v1.5"] == [1]
    text = plane.services.models.version("bge-small-v1.5", 1).metadata.text
    assert (text.pooling, text.tokenizer is not None) == ((Pooling.MEAN,), True)
    shapes = {str(each.options["input_shapes"]) for each in plane.services.builds.list(limit=50)[0]}
    assert shapes == {str({"input_ids": [1, 256]})}
    shutil.rmtree(model)
    follow(files)
    assert "bge-small-v1.5" not in served(plane)


def test_a_file_of_weights_belongs_to_its_model(plane: ControlPlane, folder: Path) -> None:
    put(folder / "a.onnx", ONNX.read_bytes())
    data = put(folder / "a.onnx.data", b"weights")
    files = ModelFiles(plane.services, [folder])
    follow(files)
    assert (served(plane), broken(plane)) == ({"a": [1]}, {})
    plane.services.models.delete("a")
    put(data, b"other weights")
    follow(files)
    assert served(plane) == {"a": [2]}  # the number of a deleted version is never used again


def test_single_files_are_watched_too(plane: ControlPlane, folder: Path) -> None:
    put(folder / "b.tflite", OTHER)
    follow(ModelFiles(plane.services, [put(folder / "a.tflite")]))
    assert served(plane) == {"a": [1]}


def test_an_unchanged_file_is_not_pushed_again(plane: ControlPlane, folder: Path) -> None:
    put(folder / "a.tflite")
    files = ModelFiles(plane.services, [folder])
    follow(files)
    plane.services.models.delete("a")
    follow(files)
    assert served(plane) == {}


def test_a_changed_file_is_a_new_version(plane: ControlPlane, folder: Path) -> None:
    put(folder / "a.tflite")
    files = ModelFiles(plane.services, [folder])
    follow(files)
    put(folder / "a.tflite", OTHER)
    follow(files)
    assert served(plane) == {"a": [1, 2]}


def test_a_file_is_pushed_after_it_is_fully_written(plane: ControlPlane, folder: Path) -> None:
    files = ModelFiles(plane.services, [folder])
    soon = 4_000_000_000
    put(folder / "a.tflite", MODEL[:50], at_s=soon)
    assert not follow(files)
    put(folder / "a.tflite", MODEL, at_s=soon + 1)
    assert not follow(files)
    assert served(plane) == {}
    assert follow(files)
    assert (served(plane), broken(plane)) == ({"a": [1]}, {})


def test_removing_a_file_deletes_its_versions(plane: ControlPlane, folder: Path) -> None:
    file = put(folder / "a.tflite")
    put(folder / "b.tflite")
    files = ModelFiles(plane.services, [folder])
    follow(files)
    put(file, OTHER)
    follow(files)
    file.unlink()
    follow(files)
    assert served(plane) == {"b": [1]}


def test_a_file_removed_while_no_server_ran_is_noticed_by_the_next(plane: ControlPlane, folder: Path) -> None:
    file = put(folder / "a.tflite")
    follow(ModelFiles(plane.services, [folder]))
    file.unlink()
    follow(ModelFiles(plane.services, [folder]))
    assert served(plane) == {}


def test_pushed_versions_are_kept(plane: ControlPlane, folder: Path) -> None:
    plane.push(name="a")
    file = put(folder / "a.tflite", OTHER)
    same = put(folder / "b.tflite")
    plane.push(name="b")
    files = ModelFiles(plane.services, [folder])
    follow(files)
    assert served(plane) == {"a": [1, 2], "b": [1]}
    file.unlink()
    same.unlink()
    follow(files)
    assert served(plane) == {"a": [1], "b": [1]}


def test_a_missing_folder_deletes_nothing(plane: ControlPlane, folder: Path) -> None:
    put(folder / "a.tflite")
    follow(ModelFiles(plane.services, [folder]))
    folder.rename(folder.with_name("elsewhere"))
    follow(ModelFiles(plane.services, [folder]))
    assert served(plane) == {"a": [1]}


def test_another_folder_deletes_nothing(plane: ControlPlane, folder: Path, tmp_path: Path) -> None:
    put(folder / "a.tflite")
    follow(ModelFiles(plane.services, [folder]))
    other = tmp_path / "other"
    other.mkdir()
    follow(ModelFiles(plane.services, [other]))
    assert served(plane) == {"a": [1]}


def test_a_version_with_an_alias_is_kept_and_logged(plane: ControlPlane, folder: Path) -> None:
    file = put(folder / "a.tflite")
    files = ModelFiles(plane.services, [folder])
    follow(files)
    plane.services.aliases.promote("a", "stable", 1, 100)
    file.unlink()
    follow(files)
    assert served(plane) == {"a": [1]}
    assert "'stable'" in broken(plane)["a.tflite"]
    plane.services.aliases.remove("a", "stable")
    follow(files)
    assert (served(plane), broken(plane)) == ({}, {})


def test_a_broken_file_is_reported_and_the_others_are_served(plane: ControlPlane, folder: Path) -> None:
    file = put(folder / "broken.tflite", b"not a model at all")
    put(folder / "good.tflite")
    files = ModelFiles(plane.services, [folder])
    assert follow(files)
    assert served(plane) == {"good": [1]}
    assert broken(plane) == {"broken.tflite": "the file is not a model that Octet reads"}
    put(file, OTHER)
    follow(files)
    assert (served(plane), broken(plane)) == ({"good": [1], "broken": [1]}, {})


def test_the_first_of_two_files_gets_the_name(plane: ControlPlane, folder: Path) -> None:
    put(folder / "a.bin")
    put(folder / "a.tflite", OTHER)
    follow(ModelFiles(plane.services, [folder]))
    assert served(plane) == {"a": [1]}
    assert "like that of a.bin" in broken(plane)["a.tflite"]


def test_the_second_file_gets_the_name_when_the_first_is_removed(plane: ControlPlane, folder: Path) -> None:
    first = put(folder / "a.bin")
    put(folder / "a.tflite", OTHER)
    files = ModelFiles(plane.services, [folder])
    follow(files)
    first.unlink()
    follow(files)
    follow(files)
    assert (served(plane), broken(plane)) == ({"a": [2]}, {})


def test_an_entry_that_cannot_be_read_is_reported_and_the_others_are_served(plane: ControlPlane, folder: Path) -> None:
    put(folder / "good.tflite")
    (folder / "loop.tflite").symlink_to("loop.tflite")
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.tflite")).write_bytes(MODEL)
    files = ModelFiles(plane.services, [folder])
    assert not follow(files)  # a file may be incomplete at the first scan, so it is reported after the second
    assert follow(files)
    assert served(plane) == {"good": [1]}
    assert broken(plane) == {
        "loop.tflite": "it is a symbolic link that leads back to itself",
        "caf\\xe9.tflite": "its name is not UTF-8; rename it",
    }
    (folder / "loop.tflite").unlink()
    follow(files)
    assert list(broken(plane)) == ["caf\\xe9.tflite"]


def test_an_unexpected_error_of_a_file_does_not_affect_the_others(
    plane: ControlPlane, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder / "a.tflite", OTHER)
    put(folder / "b.tflite")
    files = ModelFiles(plane.services, [folder])
    push = files._push

    def fail(path: Path, name: str) -> None:
        if name == "a":
            raise ZeroDivisionError
        push(path, name)

    monkeypatch.setattr(files, "_push", fail)
    assert follow(files)
    assert (served(plane), list(broken(plane))) == ({"b": [1]}, ["a.tflite"])


def test_the_server_is_not_ready_before_the_folder_could_be_read(plane: ControlPlane, folder: Path) -> None:
    put(folder / "a.tflite")
    missing = folder.with_name("later")
    files, registry = ModelFiles(plane.services, [missing]), plane.services.registry

    async def appear() -> None:
        running = asyncio.create_task(files.run())
        while "does not exist" not in registry.unready:
            await asyncio.sleep(0.01)
        folder.rename(missing)
        while "being built" not in registry.unready:
            await asyncio.sleep(0.01)
        running.cancel()

    asyncio.run(asyncio.wait_for(appear(), 60))
    assert served(plane) == {"a": [1]}


def test_an_operation_that_fails_without_the_database_is_repeated(
    plane: ControlPlane, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder / "a.tflite")
    files = ModelFiles(plane.services, [folder])

    def busy(*arguments: Any) -> None:
        raise DatabaseBusy

    with monkeypatch.context() as patched:
        patched.setattr(plane.services.models, "push", busy)
        with pytest.raises(DatabaseBusy):
            follow(files)
    follow(files)
    assert (served(plane), broken(plane)) == ({"a": [1]}, {})


def test_the_server_is_not_ready_before_its_models_are_built(tmp_path: Path, folder: Path) -> None:
    put(folder / "a.tflite")
    with control_plane(tmp_path / "data", model_files=(folder,)) as plane:
        assert "being built" in plane.services.registry.unready
