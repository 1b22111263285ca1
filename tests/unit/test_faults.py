"""Checks that docs/how-to/faults.md names only tests that exist, and at least one of each file in tests/e2e/faults."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOLD = (ROOT / "docs" / "how-to" / "faults.md").read_text()


def test_every_named_test_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TOLD)
    assert len(named) > 20
    missing = [name for path, name in named if f"def {name}(" not in (ROOT / path).read_text()]
    assert missing == []


def test_every_file_of_fault_tests_is_named() -> None:
    files = {path.name for path in (ROOT / "tests" / "e2e" / "faults").glob("test_*.py")}
    assert {name for name in files if f"faults/{name}::" not in TOLD} == set()
