"""The rate of converted files that Octet computes like LiteRT."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.models.converted.rate import rate_all
from tests.support.tflite_catalog import MODELS
from tests.support.tflite_catalog_16x8 import SUM_INT16


def test_files_are_counted_by_mode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"add.int8.tflite": MODELS["add int8"](), "sum.16x8.tflite": SUM_INT16(), "broken.tflite": b"no model"}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    rate_all(sorted(tmp_path.iterdir()))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("sum.16x8.tflite, litert-reference: refused: this numerics mode does not reproduce")
    assert lines[1:] == [
        "litert-reference: 1 equal and 0 close of 2 files that LiteRT runs",
        "xnnpack: 2 equal and 0 close of 2 files that LiteRT runs",
    ]
