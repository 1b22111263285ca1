"""Feeds damaged connections to a service that does random things (tests/native/h2/fuzz.cc)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.native import compile_h2

_SANITIZED = ("g++", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def _fuzz(program: Path, connections: int) -> str:
    """Returns the program's message about the connection that failed, or an empty string if none did."""
    run = subprocess.run([program, "0", str(connections)], capture_output=True, text=True)
    return run.stderr or f"status {run.returncode}" * (run.returncode != 0)


def test_damaged_connections_break_nothing(tmp_path: Path) -> None:
    assert _fuzz(compile_h2("fuzz", tmp_path), 5000) == ""


@pytest.mark.skipif(shutil.which("g++") is None, reason="the sanitizers' runtime comes with a system's compiler")
@pytest.mark.slow
def test_damaged_connections_break_nothing_that_sanitizers_see(tmp_path: Path) -> None:
    assert _fuzz(compile_h2("fuzz", tmp_path, _SANITIZED), 50_000) == ""
