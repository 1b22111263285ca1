from __future__ import annotations

import json
import tomllib
from pathlib import Path

from scripts import openapi

ROOT = Path(__file__).resolve().parents[3]


def test_the_document_is_written(tmp_path: Path) -> None:
    openapi.write(tmp_path / "build" / "openapi.json")
    assert "/api/v1/models" in json.loads((tmp_path / "build" / "openapi.json").read_text())["paths"]


def test_the_javascript_client_has_the_version_of_this_project() -> None:
    package = json.loads((ROOT / "clients" / "javascript" / "package.json").read_text())
    assert package["version"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
