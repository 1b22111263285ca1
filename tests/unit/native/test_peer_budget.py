"""Tests what clients may hold and do (tests/native/h2/budget_facts.cc)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.native import compile_h2


def test_what_clients_may_hold_and_do(tmp_path: Path) -> None:
    run = subprocess.run([compile_h2("budget_facts", tmp_path)], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
