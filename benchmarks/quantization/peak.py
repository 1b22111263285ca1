"""Measures the memory of a process that quantizes, by the number of its inputs:

    python -m benchmarks.quantization.peak MODEL.onnx INPUTS.npy SCRATCH COUNT…

Everything, including the models, runs in one process, as in the child of `octet quantize`: with histograms, fitted
weights and the measurement of the loss, which is four passes. Prints the peak in bytes for each count. The first count
builds the model and loads libraries: give a small one, and ignore its peak.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from service.compiler.children import observing_roles
from service.compiler.messages.checking import ArtifactFiles
from service.compiler.messages.role import Request, Result, Role
from service.core.settings import load_settings
from service.quantize.calibration.building import build
from service.quantize.calibration.data import Data
from service.quantize.calibration.observing import CalibrationSession
from service.quantize.quantization import Calibration, Options
from service.quantize.weights.fitting import Fit
from tests.support.compiling import Quiet


class _Here:
    """An `observing.Machine` that runs models in this process."""

    def build(self, source: Path, directory: Path) -> ArtifactFiles:
        return build(source, directory, Quiet(), load_settings({"build_nice": 0}), {})

    def discard(self, built: ArtifactFiles) -> None:
        for path in built.paths:
            path.unlink()

    def run(self, role: Role[Request, Result], request: Request, directory: Path, files: Iterable[Path]) -> None:
        with contextlib.chdir(directory):
            getattr(observing_roles, f"{role.name}_role")(request.to_json(), None)


def main(model: Path, inputs: Path, scratch: Path, counts: list[int]) -> None:
    options = Options("mse", fit=Fit(rounding=True))
    for most in counts:
        scratch.mkdir()
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak (proc(5))
        session = CalibrationSession(scratch, _Here(), threads=1)
        calibration = Calibration(model.read_bytes(), session, Data(inputs, most=most), options)
        calibration.measure(calibration.quantize(options)).to_json()
        peak = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
        assert peak
        print(int(peak[1]) * 1024, flush=True)
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), [*map(int, sys.argv[4:])])
