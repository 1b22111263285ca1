"""Measures calibration: inputs per second beside ONNX Runtime's calibrator, and memory by the number of inputs."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.harness.home import CHECKOUT, Home
from benchmarks.harness.tables import table
from benchmarks.harness.turns import alternate, time_calls
from benchmarks.quantization.making import peer
from benchmarks.quantization.records import conditions, describe, folder_of, results_of, write
from service.core.settings import load_settings
from service.quantize.calibration.data import Data
from service.quantize.calibration.observing import CalibrationSession, Children
from service.quantize.quantization import Calibration, Options
from tests.support.compiling import Quiet

_FAST, _SMALL = (
    "MobileNetV2, TF2 file dequantized",
    "Digits",
)  # the network that is timed, and the one whose memory is measured
_ROUNDS, _IMAGES, _COUNTS = 3, 64, (100, 1_000, 10_000)
_NAME = "calibration"
_Rate = Callable[[], float]


def measure(home: Home) -> None:
    """Measures the speed and the memory of calibration. Needs the files of both networks, which the accuracy
    measurement stores."""
    found = {
        **conditions(),
        "rates": _rates(folder_of(home, _FAST)),
        "peaks": _peaks(folder_of(home, _SMALL)),
    }
    write(results_of(home, _NAME), found)
    print(json.dumps(found, indent=1), flush=True)


def _rates(folder: Path) -> dict[str, float]:
    """Returns the inputs per second over all passes, as the median of rounds in turns. The time to build the model is
    not included."""
    model, file = folder / "float.onnx", folder / "timed.npy"
    np.save(file, np.load(folder / "inputs.npy", mmap_mode="r")[:_IMAGES])
    with tempfile.TemporaryDirectory() as scratch:
        session = CalibrationSession(Path(scratch), Children(load_settings({"build_nice": 0}), Quiet(), {}), threads=1)
        data = Data(file, most=_IMAGES)
        built = Calibration(model.read_bytes(), session, Data(file, most=1), Options()).observed.model

        def octet_rate(histograms: bool) -> float:
            return _IMAGES / time_calls(lambda: session.statistics(built, data, histograms), 0)[0]

        def onnxruntime_rate(method: str) -> float:
            return _IMAGES / float(peer("calibrate", model, file, method, _IMAGES).split()[-1])

        contenders: dict[str, _Rate] = {
            "Octet, extremes": lambda: octet_rate(False),
            "Octet, extremes and histograms": lambda: octet_rate(True),
            "ONNX Runtime, MinMax": lambda: onnxruntime_rate("MinMax"),
            "ONNX Runtime, Entropy": lambda: onnxruntime_rate("Entropy"),
        }
        taken: dict[str, list[float]] = {name: [] for name in contenders}
        for _, name in alternate(contenders, _ROUNDS):
            taken[name].append(contenders[name]())
    return {name: statistics.median(rates) for name, rates in taken.items()}


def _peaks(folder: Path) -> dict[str, list[int]]:
    """Returns peaks in bytes, by the number of inputs."""
    some = np.load(folder / "inputs.npy")
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "inputs.npy"
        np.save(file, np.concatenate([some] * -(-_COUNTS[-1] // len(some)))[: _COUNTS[-1]])
        command = [sys.executable, "-m", "benchmarks.quantization.peak", str(folder / "float.onnx"), str(file)]
        command += [f"{scratch}/scratch", "32", *map(str, _COUNTS)]
        own = subprocess.run(command, check=True, capture_output=True, text=True, cwd=CHECKOUT).stdout.split()[1:]
        peaks = {"Octet, histograms and fitted weights": [*map(int, own)]}
        for method in ("MinMax", "Entropy"):
            outputs = [peer("calibrate", folder / "float.onnx", file, method, count) for count in _COUNTS]
            peaks[f"ONNX Runtime, {method}"] = [int(each.split()[-2]) for each in outputs]
    return peaks


def section(home: Home) -> str:
    """Returns the stored results as Markdown; empty if none exist."""
    path = results_of(home, _NAME)
    if not path.exists():
        return ""
    found = json.loads(path.read_text())
    rates = [[name, f"{rate:.1f}"] for name, rate in found["rates"].items()]
    peaks = [[name, *(f"{size / 2**20:.0f}" for size in sizes)] for name, sizes in found["peaks"].items()]
    columns = ["peak, MiB", *(f"{count:,} inputs" for count in _COUNTS)]
    return f"""## Speed and memory of calibration

Written by `python -m benchmarks.quantization --calibration`: {describe(found)}.

Images a second of {_FAST}, {_IMAGES} of them, the median of {_ROUNDS} rounds in turns; over all passes
through the images, without building or augmenting the model. Octet runs on 1 thread, in children that are started for
every 32 images; ONNX Runtime's calibrator (`create_calibrator`) has its defaults, by which its session uses all
cores.

{table(["calibrator", "images/s"], rates)}

Memory of a whole process for the digits' network, by the number of calibration inputs. Octet's makes four passes: with
histograms, fitted weights, and the measurement of the loss.

{table(columns, peaks)}"""
