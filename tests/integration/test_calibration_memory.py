"""More inputs do not increase the memory of a calibration."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.home import CHECKOUT
from tests.support.float_networks import pictures, residual_network

FEW, MANY = 1_000, 10_000
# Each further input may take 1 KiB of memory. An input itself has 3 KiB, and the tensors that are computed from it have
# 90 KiB. For each input, only two numbers per tensor, up to three times, and the pages of its outputs remain in memory.
MOST_BYTES = (MANY - FEW) << 10


@pytest.mark.slow
def test_ten_thousand_inputs_need_the_memory_of_a_thousand(tmp_path: Path) -> None:
    """The calibration reads the inputs four times, because it builds histograms, fits weights and measures the
    result."""
    (tmp_path / "model.onnx").write_bytes(residual_network())
    some = pictures(500)
    file = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (MANY, *some.shape[1:]))
    for start in range(0, MANY, len(some)):
        file[start : start + len(some)] = some
    file.flush()
    files = [str(tmp_path / name) for name in ("model.onnx", "x.npy", "scratch")]
    command = [sys.executable, "-m", "benchmarks.quantization.peak", *files, "32", str(FEW), str(MANY)]
    peaks = subprocess.run(command, check=True, capture_output=True, text=True, cwd=CHECKOUT).stdout.split()
    _, few, many = map(int, peaks)
    assert many - few < MOST_BYTES, (few, many)
