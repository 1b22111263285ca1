"""Tests that includes between the folders of the native code go in one direction, like imports in Python
(import-linter).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_NATIVE = Path(__file__).parents[3] / "service" / "native"
_PLANE = _NATIVE / "plane"
# From top to bottom. A folder includes only folders of lower rows.
_LAYERS = (("net",), ("control",), ("answer", "queue", "limits", "tls"), ("request", "h2"), ("text",))
_LEVELS = {folder: level for level, row in enumerate(reversed(_LAYERS)) for folder in row}
_INCLUDE = re.compile(r'^#include "(?:plane/)?([^"/]+)/', re.MULTILINE)


def included(folder: Path) -> set[str]:
    """Returns the first parts of the paths that the sources of a folder include, other than the folder itself."""
    sources = [path for suffix in ("*.cc", "*.h") for path in folder.rglob(suffix)]
    return {name for path in sources for name in _INCLUDE.findall(path.read_text())} - {folder.name}


def test_every_folder_of_the_data_plane_has_a_layer() -> None:
    assert {path.parent.name for path in _PLANE.glob("*/*.cc")} == set(_LEVELS)


def test_the_folders_of_the_data_plane_include_lower_layers_only() -> None:
    upward = [
        f"{folder} includes {other}"
        for folder, level in _LEVELS.items()
        for other in sorted(included(_PLANE / folder) & set(_LEVELS))
        if _LEVELS[other] >= level
    ]
    assert upward == []


@pytest.mark.parametrize("folder", ["runtime", "common"])
def test_the_runtime_includes_nothing_of_the_data_plane(folder: str) -> None:
    assert included(_NATIVE / folder) & set(_LEVELS) == set()
