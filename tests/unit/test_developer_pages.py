"""Checks that the files and links in the pages for developers exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "developers").glob("*.md"))
# Paths from the root of the checkout. Names in capitals, such as FORMAT, and one-letter names are placeholders.
_PATH = re.compile(r"`((?:service|tests|docs|scripts|benchmarks)/[\w./+-]+)`")
_PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b(?!\.md)|/[a-z]/")
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_named_files_exist(page: Path) -> None:
    names = [name for name in _PATH.findall(page.read_text()) if not _PLACEHOLDER.search(name)]
    assert [name for name in names if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_linked_pages_exist(page: Path) -> None:
    assert [link for link in _LINK.findall(page.read_text()) if not (page.parent / link).exists()] == []
