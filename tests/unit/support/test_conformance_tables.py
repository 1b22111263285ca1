"""Tests of `make tables`, the run of the conformance tests that writes docs/reference/conformance.md."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.harness.kept import today
from tests.support.waiting import WORK_TIMEOUT_S

_ROOT = Path(__file__).parents[3]
_TEST = """
import numpy as np
import pytest

from tests.support.evidence import note_accuracy


def test_one() -> None:
    note_accuracy("one", "tflite", "xnnpack", np.eye(6), np.eye(6), None)


@pytest.mark.skipif({skip}, reason="for this test")
def test_two() -> None:
    note_accuracy("two", "tflite", "xnnpack", np.eye(6), np.eye(6), None)
"""


def ran(folder: Path, skip: bool) -> subprocess.CompletedProcess[str]:
    """Runs pytest with the real conftest.py on two tests, of which the second is skipped if `skip` is true."""
    tests = folder / "conformance"
    tests.mkdir(exist_ok=True)
    shutil.copy(_ROOT / "tests" / "conformance" / "conftest.py", tests)
    (tests / "test_it.py").write_text(_TEST.format(skip=skip))
    settings = os.environ | {"OCTET_TABLES": str(folder / "tables.md"), "PYTHONPATH": str(_ROOT)}
    command = [sys.executable, "-m", "pytest", "--import-mode=importlib", "--rootdir", str(folder), str(tests)]
    return subprocess.run(
        command, capture_output=True, text=True, env=settings, cwd=folder, timeout=WORK_TIMEOUT_S, check=False
    )


def test_a_run_keeps_the_rows_of_skipped_tests(tmp_path: Path) -> None:
    assert ran(tmp_path, skip=False).returncode == 0
    complete = (tmp_path / "tables.md").read_text()
    assert "| one |" in complete
    assert "| two |" in complete
    assert ran(tmp_path, skip=True).returncode == 0
    assert (tmp_path / "tables.md").read_text() == complete


def test_a_kept_row_has_the_day_of_its_measurement(tmp_path: Path) -> None:
    assert ran(tmp_path, skip=False).returncode == 0
    record = tmp_path / "tables.json"
    record.write_text(record.read_text().replace(today(), "2026-01-02"))
    assert ran(tmp_path, skip=True).returncode == 0
    lines = (tmp_path / "tables.md").read_text().splitlines()
    one, two = (line for line in lines if line.startswith(("| one", "| two")))
    assert one.endswith(f"| {today()} |")
    assert two.endswith("| 2026-01-02 |")


def test_a_run_without_a_record_keeps_the_rows_of_the_page(tmp_path: Path) -> None:
    ran(tmp_path, skip=False)
    complete = (tmp_path / "tables.md").read_text()
    (tmp_path / "tables.json").unlink()
    assert ran(tmp_path, skip=True).returncode == 0
    assert (tmp_path / "tables.md").read_text() == complete
