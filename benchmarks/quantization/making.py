"""Quantizes a float network by each tool and method, and judges the results of all files."""

from __future__ import annotations

import io
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.harness.home import default_home
from benchmarks.quantization.judging import Array
from benchmarks.quantization.networks import Network
from benchmarks.quantization.records import Record, Row, conditions, folder_of
from service.compiler.importers import detect
from service.core.errors import Unsupported, UnsupportedOperator
from service.core.settings import load_settings
from service.quantize.calibration.data import Data
from service.quantize.calibration.methods import METHODS
from service.quantize.calibration.observing import CalibrationSession, Children
from service.quantize.export.model import as_onnx
from service.quantize.quantization import Calibration, Options, Quantized
from service.quantize.search.budgeting import within
from service.quantize.search.sensitivity import decibels
from service.quantize.weights.fitting import Fit
from tests.support.compiling import Quiet

DEFAULT = "Octet, minmax"
BUDGET = 0.001  # Share of correct results that mixtures may lose.
# Each row has a command of `peer.py`, its argument, and the file's suffix. The first row of a tool has its defaults.
THEIRS = (
    ("ONNX Runtime, MinMax", "onnxruntime", "MinMax", ".onnx"),
    ("ONNX Runtime, Entropy", "onnxruntime", "Entropy", ".onnx"),
    ("ONNX Runtime, Percentile", "onnxruntime", "Percentile", ".onnx"),
    ("NNCF, performance", "nncf", "performance", ".onnx"),
    ("NNCF, mixed", "nncf", "mixed", ".onnx"),
    ("torchao, PT2E", "torchao", "X86InductorQuantizer", ".pt2"),
    ("AI Edge Quantizer", "litert", "static_wi8_ai8", ".tflite"),
)
_PLAIN = {"minmax, no-correct-bias": Options(fit=Fit(biases=False))}
_OPTIONS = {
    "minmax, adaround": Options(fit=Fit(rounding=True)),
    "minmax, no-correct-bias, adaround": Options(fit=Fit(biases=False, rounding=True)),
    "percentile, adaround": Options("percentile", fit=Fit(rounding=True)),
    "minmax, equalize": Options(equalize=True),
    "minmax, rounds 1": Options(rounds=1),
}
_SCRIPT = Path(__file__).with_name("peer.py")
_LIMIT_S = 1500


def measured(title: str, network: Network) -> Record:
    """Quantizes `network` with all tools, and stores the files in its folder."""
    record = Record(title, network.what, **conditions())
    try:
        model = as_onnx(network.source, {})
        folder = folder_of(default_home(), title)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return _measured(replace(record, inputs=len(network.inputs)), network, model, folder)
    except (Unsupported, UnsupportedOperator) as error:
        return replace(record, refused=error.message.partition(". They are")[0])


def _measured(record: Record, network: Network, model: bytes, folder: Path) -> Record:
    prepared = folder / "float.onnx"
    (folder / "source.onnx").write_bytes(model)
    peer("prepare", folder / "source.onnx", prepared, ",".join(map(str, (1, *network.inputs.shape[1:]))))
    if detect.format_of(io.BytesIO(network.source)) == detect.TFLITE:
        (folder / "float.tflite").write_bytes(network.source)
    np.save(folder / "inputs.npy", network.inputs)
    np.save(folder / "calibration.npy", network.calibration)
    rows, summary = _ours(network, prepared, folder)
    rows += [_peer_row(folder, *each) for each in THEIRS]
    made = [Row("float", prepared.name), *(row for row in rows if not row.failed)]
    decided, noise = _decided(network.decision, folder, [folder / row.file for row in made])
    judged = [
        replace(
            row,
            size_bytes=(folder / row.file).stat().st_size,
            judged=network.judge(own) if network.judge else None,
            agreed=network.agree(own, decided[0]),
            noise_db=min(decibels(*each) for each in sums),
        )
        for row, own, sums in zip(made, decided, noise, strict=True)
    ]
    failed = [row for row in rows if row.failed]
    return replace(record, rows=(*judged, *failed), scored=network.scored, agreed=network.agreed, said=summary)


def _ours(network: Network, prepared: Path, folder: Path) -> tuple[list[Row], str]:
    """Returns the rows of Octet's files, and a comparison of Octet's and ONNX Runtime's results for the first file."""
    scratch = folder / "scratch"
    scratch.mkdir()
    session = CalibrationSession(scratch, Children(load_settings({"build_nice": 0}), Quiet(), {}))
    started_s = time.monotonic()
    data = Data(folder / "calibration.npy")
    model = prepared.read_bytes()
    seen = Options("kl", fit=Fit(rounding=network.options))  # all statistics that any row needs
    calibration = Calibration(model, session, data, seen)
    shared_s = time.monotonic() - started_s
    options_by_name = {
        **{method: Options(method) for method in METHODS},
        **_PLAIN,
        **(_OPTIONS if network.options else {}),
    }
    made: dict[str, Quantized] = {}
    rows: list[Row] = []
    for text, options in options_by_name.items():
        started_s = time.monotonic()
        own = Calibration(model, session, data, options) if options.rounds or options.equalize else calibration
        made[text] = own.quantize(options)
        seconds = time.monotonic() - started_s + (shared_s if own is calibration else 0)
        rows.append(_save_row(folder, f"Octet, {text}", made[text], seconds))
    first = made["minmax"]
    if network.labels:
        started_s = time.monotonic()
        ranked = calibration.sensitivity(Options())
        mixture = partial(ranked.mixture, labels=network.labels)
        enough, _ = within(BUDGET, ranked.curve(network.labels), mixture)
        mixed = calibration.quantize(Options().raising(enough.kept, enough.wide))
        name = f"Octet, minmax, budget 0.1 %: {len(enough.kept)} layers in float, {len(enough.wide)} of 16x8"
        rows.append(_save_row(folder, name, mixed, time.monotonic() - started_s + shared_s))
    text = _compared(calibration.measure(first).answers, folder, rows[0])
    real = ", ".join(f"{number} {kind}" for kind, _, number in first.real) or "nothing"
    shutil.rmtree(scratch)
    return rows, f"{text} Float: {real}."


def _save_row(folder: Path, name: str, made: Quantized, seconds: float) -> Row:
    file = f"octet-{len([*folder.glob('octet-*.onnx')])}.onnx"
    (folder / file).write_bytes(made.file)
    return Row(name, file, seconds)


def _compared(ours: Array, folder: Path, row: Row) -> str:
    peer("answers", folder / "calibration.npy", folder / "answers.npy", folder / row.file)
    theirs = np.load(folder / "answers.npy").reshape(ours.shape)
    found = "are equal"
    if not np.array_equal(ours, theirs):
        apart = decibels(float((theirs.astype(np.float64) ** 2).sum()), float(((theirs - ours) ** 2).sum()))
        found = f"differ in {np.mean(ours != theirs):.2%} of the values, by noise of {apart:.0f} dB"
    return f"The results of `{row.name}` for the calibration inputs, in Octet and in ONNX Runtime, {found}."


def _peer_row(folder: Path, name: str, tool: str, argument: str, ending: str) -> Row:
    file, source = f"{tool}-{argument}{ending}", folder / ("float.tflite" if ending == ".tflite" else "float.onnx")
    if not source.exists():
        return Row(name, file, failed="there is no float TFLite file of it")
    try:
        output = peer(tool, source, folder / "calibration.npy", folder / file, argument)
        peer("answers", folder / "calibration.npy", folder / "answers.npy", folder / file)
    except subprocess.TimeoutExpired:
        return Row(name, file, failed=f"takes more than {_LIMIT_S} s")
    except subprocess.CalledProcessError as error:
        lines = [line for line in str(error.stderr).splitlines() if line.strip()] or ["no message"]
        return Row(name, file, failed=f"fails: {lines[-1][:160].replace('|', '/')}")
    return Row(name, file, float(output.split()[-1]))


def _decided(decision: str, folder: Path, models: Sequence[Path]) -> tuple[list[Array], Array]:
    """Runs each model in its tool's runtime. Returns each model's decisions on all inputs, and an array
    `[models, outputs, 2]` with two sums of squares: of the first model's output, and of the model's difference from it.
    """
    peer("run", folder / "inputs.npy", folder / "decided.npz", decision, *models)
    with np.load(folder / "decided.npz") as found:
        return [found[f"decided_{index}"] for index in range(len(models))], found["sums"]


def peer(*arguments: object) -> str:
    """Returns the output of a command of `peer.py`. Raises subprocess.SubprocessError."""
    command = [str(default_home().python("quantization")), "-W", "ignore", str(_SCRIPT), *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_LIMIT_S).stdout
