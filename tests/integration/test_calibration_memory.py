"""A calibration takes no more memory for more inputs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.float_networks import pictures, residual_network

FEW, MANY = 1_000, 10_000
MOST_BYTES = (MANY - FEW) << 10  # 1 KiB for each further input, which itself has 3 and makes 90: what stays of it are
# two numbers for each tensor, held up to three times, and the pages of its answers
# In a process of its own, and the models run in it, as in the child of `octet quantize`: its peak is then what they
# take. The first calibration, which builds the model and loads libraries, is not counted.
SCRIPT = """
import contextlib, re, sys
from pathlib import Path

from service.compiler import observing_roles
from service.compiler.sandbox import Report
from service.core.settings import load_settings
from service.quantize.building import build
from service.quantize.data import Data
from service.quantize.fitting import Fit
from service.quantize.observing import Workshop
from service.quantize.quantization import Calibration, Options


class Silent:
    def stage(self, stage, fraction=0.0): ...
    def log(self, line): ...


class Here:
    def build(self, source, directory):
        return build(source, directory, Silent(), load_settings({"build_nice": 0}), {})

    def run(self, role, request, directory, files):
        with contextlib.chdir(directory):
            getattr(observing_roles, f"{role}_role")(request, None)


folder = Path(sys.argv[1])
(folder / "scratch").mkdir()
workshop = Workshop(folder / "scratch", Here(), threads=1)
options = Options("mse", fit=Fit(biases=True, rounding=True))
model = (folder / "model.onnx").read_bytes()
for most in map(int, sys.argv[2:]):
    Path("/proc/self/clear_refs").write_text("5")
    calibration = Calibration(model, workshop, Data(folder / "x.npy", most=most), options)
    calibration.measure(calibration.quantize(options)).to_json()
    print(int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024)
"""


@pytest.mark.slow
def test_ten_thousand_inputs_take_the_memory_of_a_thousand(tmp_path: Path) -> None:
    """With histograms, fitted weights and what the result costs: four passes."""
    (tmp_path / "model.onnx").write_bytes(residual_network())
    some = pictures(500)
    file = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (MANY, *some.shape[1:]))
    for start in range(0, MANY, len(some)):
        file[start : start + len(some)] = some
    file.flush()
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), "32", str(FEW), str(MANY)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    _, few, many = map(int, said)
    assert many - few < MOST_BYTES, (few, many)
