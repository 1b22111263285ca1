"""Checks a page with axe-core 4.10.3 (npm, Mozilla Public License 2.0), which is in `tests/fixtures/page`."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

from playwright.sync_api import Page

_PROGRAM = Path(__file__).resolve().parents[1] / "fixtures" / "page" / "axe-core-4.10.3.min.js.gz"


@cache
def _program() -> str:
    return gzip.decompress(_PROGRAM.read_bytes()).decode()


def violations(page: Page) -> list[str]:
    """Returns what axe finds wrong with the current view: the rule, and the first element that breaks it."""
    page.evaluate(_program())
    found = page.evaluate("axe.run({ resultTypes: ['violations'] })")["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html']}: {each['nodes'][0]['failureSummary']}" for each in found]
