"""Tests which sources are checked after a change."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.tidy import sources_of


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    files = {
        "a.cc": '#include "x/a.h"\n#include "x/b.h"\n',
        "c.cc": '#include "x/b.h"\n',
        "a.h": "",
        "b.h": "",
        "d.h": "",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return [tmp_path / "a.cc", tmp_path / "c.cc"]


@pytest.mark.parametrize(
    ("changed", "checked"), [("c.cc", ["c.cc"]), ("a.h", ["a.cc"]), ("b.h", ["a.cc"]), ("d.h", []), ("removed.cc", [])]
)
def test_the_source_that_covers_a_change_is_checked(sources: list[Path], changed: str, checked: list[str]) -> None:
    folder = sources[0].parent
    assert sources_of([folder / changed], sources) == {folder / name for name in checked}
