"""Tests of `make tables`, the run of the conformance tests that writes docs/reference/conformance.md."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
    settings = os.environ | {
        "OCTET_TABLES": str(folder / "tables.md"),
        "PYTHONPATH": str(_ROOT),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    command = [sys.executable, "-m", "pytest", "--import-mode=importlib", "--rootdir", str(folder), str(tests)]
    return subprocess.run(
        command, capture_output=True, text=True, env=settings, cwd=folder, timeout=WORK_TIMEOUT_S, check=False
    )


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tables and the record of a run in which neither test was skipped."""
    folder = tmp_path_factory.mktemp("complete")
    done = ran(folder, skip=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def folder(complete: Path, tmp_path: Path) -> Path:
    """A copy of `complete`."""
    return Path(shutil.copytree(complete, tmp_path / "copy"))


def test_a_run_keeps_the_rows_of_skipped_tests(folder: Path) -> None:
    complete = (folder / "tables.md").read_text()
    assert "| one |" in complete
    assert "| two |" in complete
    assert ran(folder, skip=True).returncode == 0
    assert (folder / "tables.md").read_text() == complete


def test_a_kept_row_has_the_day_of_its_measurement(folder: Path) -> None:
    record = folder / "tables.json"
    record.write_text(record.read_text().replace(today(), "2026-01-02"))
    assert ran(folder, skip=True).returncode == 0
    lines = (folder / "tables.md").read_text().splitlines()
    one, two = (line for line in lines if line.startswith(("| one", "| two")))
    assert one.endswith(f"| {today()} |")
    assert two.endswith("| 2026-01-02 |")


def test_a_run_without_a_record_keeps_the_rows_of_the_page(folder: Path) -> None:
    complete = (folder / "tables.md").read_text()
    (folder / "tables.json").unlink()
    assert ran(folder, skip=True).returncode == 0
    assert (folder / "tables.md").read_text() == complete
