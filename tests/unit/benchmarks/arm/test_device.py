"""Runs the benchmark of `benchmarks/device.sh` on this machine, and checks the table that it writes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.arm import device
from benchmarks.harness import tables

_ROOT = Path(__file__).resolve().parents[4]
_DIGITS = _ROOT / "examples" / "digits_int8.tflite"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Returns a folder with a model, its artifact, and the empty folder `broken.octet`, which is not an artifact."""
    models = tmp_path / "models"
    models.mkdir()
    shutil.copy(_DIGITS, models / "digits.tflite")
    command = [sys.executable, "-m", "service.cli", "compile", str(_DIGITS), "-o", str(models / "digits.octet")]
    subprocess.run(command, check=True, capture_output=True)
    (models / "broken.octet").mkdir()
    return models


@pytest.mark.slow
def test_the_table_contains_the_measured_times(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "ARM.md"
    page.write_text("before\n\n<!-- measured: from here -->\n\nold\n\n<!-- measured: to here -->\n\nafter\n")
    monkeypatch.setattr(tables, "PAGES", tmp_path)
    arguments = ["device", str(folder), "--seconds", "0.05", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", arguments)
    device.main()
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    measured = {row[0]: row for row in rows[2:]}
    assert measured["broken"][1:] == ["does not run here", measured["broken"][2], "-", "-", "-"]
    assert all(float(cell) > 0 for cell in measured["digits"][3:5])  # The times of Octet and LiteRT.
    assert measured["digits"][5] == "-"  # ONNX Runtime: the model has no ONNX file.
    assert "octet on broken.octet:" in capsys.readouterr().err


def test_a_board_needs_only_the_runtime() -> None:
    code = "import sys; sys.modules['tvm'] = None; sys.modules['service.compiler'] = None; import benchmarks.arm.device"
    subprocess.run([sys.executable, "-c", code], cwd=_ROOT, check=True)
