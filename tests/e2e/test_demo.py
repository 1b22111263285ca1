"""Tests `make demo` as a new user runs it: without a compiler, a linker or any other program in PATH."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import WORK_TIMEOUT_S

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def demo() -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OCTET_", "TVM_"))}
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / "demo.py"],
        env=environment | {"PATH": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WORK_TIMEOUT_S,
    )


def test_it_succeeds(demo: subprocess.CompletedProcess[str]) -> None:
    assert demo.returncode == 0, demo.stdout + demo.stderr


def test_it_shows_the_picture_and_the_right_digit(demo: subprocess.CompletedProcess[str]) -> None:
    assert "████████" in demo.stdout
    first = next(line for line in demo.stdout.splitlines() if line.endswith("%"))
    assert first.split()[0] == "2"


def test_it_shows_the_checks(demo: subprocess.CompletedProcess[str]) -> None:
    assert re.search(r"checked +against LiteRT .*: all 2,780 values from 278 inputs are equal", demo.stdout)
    assert re.search(r"canonical form .*: all 2,780 values from 278 inputs are equal", demo.stdout)
    assert "100 % of 246,000 multiply-accumulates" in demo.stdout


def test_the_second_push_is_answered_from_the_cache(demo: subprocess.CompletedProcess[str]) -> None:
    assert "from the cache in" in demo.stdout
    assert demo.stderr.count("codegen") == 1


def test_it_logs_no_errors(demo: subprocess.CompletedProcess[str]) -> None:
    assert "Traceback" not in demo.stderr
    assert "WARNING" not in demo.stderr
