"""The configured dialects and their digests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from service.core.builds import dialects
from service.core.errors import InvalidInput


@pytest.fixture(autouse=True)
def _configured_by_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(dialects.VARIABLE, "")  # restores the variable, which `configure` sets


def file(folder: Path, name: str, text: str = "") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file(tmp_path, "mine.py")
    monkeypatch.chdir(tmp_path)
    dialects.configure(["mine.py"])
    assert dialects.environment() == {"OCTET_DIALECTS": str(tmp_path / "mine.py")}
    assert [each.name for each in dialects.configured()] == ["mine"]


def test_a_block_adds_dialects_and_removes_them(tmp_path: Path) -> None:
    first, second = file(tmp_path, "first.py"), file(tmp_path, "second.py")
    dialects.configure([first])
    with dialects.added([second]), dialects.added([]):
        assert [each.name for each in dialects.configured()] == ["first", "second"]
    assert [each.name for each in dialects.configured()] == ["first"]
    with pytest.raises(InvalidInput, match=r"gone\.py is not a file"), dialects.added([tmp_path / "gone.py"]):
        pass
    assert [each.name for each in dialects.configured()] == ["first"]


def test_the_digest_follows_the_content(tmp_path: Path) -> None:
    dialects.configure([file(tmp_path, "mine.py", "1")])
    first = dialects.digests()
    file(tmp_path, "mine.py", "2")
    assert list(first) == list(dialects.digests()) == ["dialect mine"]
    assert first != dialects.digests()


def test_the_digest_of_a_package_covers_all_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "curves").mkdir()
    file(tmp_path / "curves", "__init__.py")
    helper = file(tmp_path / "curves", "helper.py", "1")
    (tmp_path / "curves-1.0.dist-info").mkdir()
    file(tmp_path / "curves-1.0.dist-info", "METADATA", "Metadata-Version: 2.1\nName: curves\nVersion: 1.0\n")
    file(tmp_path / "curves-1.0.dist-info", "entry_points.txt", "[octet.passes]\ncurves = curves\n")
    monkeypatch.syspath_prepend(tmp_path)
    dialects.configure(["curves"])
    first = dialects.digests()
    helper.write_text("2")
    assert first != dialects.digests()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone.py", "gone.py is not a file"),
        ("nobody", "no installed package has the dialect 'nobody'"),
        (f"a{os.pathsep}b.py", "cannot contain"),
    ],
)
def test_what_cannot_be_found_is_named(name: str, message: str) -> None:
    def configure() -> None:
        dialects.configure([name])
        dialects.configured()

    with pytest.raises(InvalidInput, match=message):
        configure()


def test_without_dialects_a_key_has_no_part_for_them() -> None:
    assert dialects.digests() == {}
    assert dialects.environment() == {}
