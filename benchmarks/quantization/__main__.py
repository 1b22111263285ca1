"""Quantizes float networks by each tool and method, runs all of them, and writes QUANTIZATION.md:

python -m benchmarks.quantization [--only WORD] [--lines 400]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.places import default_home
from benchmarks.quantization.networks import NETWORKS, Array, Network
from service.core.build import Stage
from service.core.settings import load_settings
from service.core.target import detect_host
from service.quantize.data import Data
from service.quantize.fitting import Fit
from service.quantize.methods import METHODS
from service.quantize.observing import Children, Workshop
from service.quantize.quantization import Calibration, Options
from service.quantize.sensitivity import decibels

_THEIRS = (
    ("ONNX Runtime, MinMax", "onnxruntime", "MinMax"),
    ("ONNX Runtime, Entropy", "onnxruntime", "Entropy"),
    ("ONNX Runtime, Percentile", "onnxruntime", "Percentile"),
    ("NNCF, performance", "nncf", "performance"),
    ("NNCF, mixed", "nncf", "mixed"),
)
_FITTED = {
    "minmax, correct-bias": Options(fit=Fit(biases=True)),
    "minmax, adaround": Options(fit=Fit(rounding=True)),
    "minmax, both of these": Options(fit=Fit(biases=True, rounding=True)),
    "percentile, both of these": Options("percentile", fit=Fit(biases=True, rounding=True)),
    "minmax, equalize": Options(equalize=True),
    "minmax, rounds 1": Options(rounds=1),
}
_PAGE = Path(__file__).parents[1] / "QUANTIZATION.md"
_SCRIPT = Path(__file__).with_name("peer.py")


@dataclass(frozen=True)
class Row:
    """A quantized file; without one, what the tool said instead.

    Attributes:
        seconds: that calibrating and quantizing took.
    """

    name: str
    file: Path
    seconds: float = 0.0
    failed: str = ""


class _Silent:
    def stage(self, stage: Stage, fraction: float = 0.0) -> None:
        pass

    def log(self, line: str) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--only", default="", help="networks with this in their title; the page keeps its other sections"
    )
    parser.add_argument("--lines", type=int, default=400, help="pictures of text that are read")
    arguments = parser.parse_args()
    sections = []
    for title, make in NETWORKS.items():
        if arguments.only not in title:
            continue
        with tempfile.TemporaryDirectory() as folder:
            sections.append(_section(title, make(arguments.lines), Path(folder)))
            print(sections[-1], flush=True)
    if arguments.only:
        _PAGE.write_text(replaced(_PAGE.read_text(), sections))
    else:
        _PAGE.write_text("\n".join([_HEAD.format(machine=detect_host().model_name), *sections]))


def replaced(page: str, sections: Sequence[str]) -> str:
    """`page` with `sections` in place of those of the same titles; new ones at its end."""
    head, *rest = re.split(r"^(?=## )", page, flags=re.MULTILINE)
    by_title = {section.split("\n", 1)[0]: section for section in (*rest, *sections)}
    return "\n".join(part.strip("\n") + "\n" for part in (head, *by_title.values()))


def _section(title: str, network: Network, folder: Path) -> str:
    source, prepared = folder / "source.onnx", folder / "float.onnx"
    source.write_bytes(network.float)
    _peer("prepare", source, prepared, max(network.opset, 13), ",".join(map(str, (1, *network.inputs.shape[1:]))))
    np.save(folder / "inputs.npy", network.inputs)
    np.save(folder / "calibration.npy", network.calibration)
    rows, equal = _ours(network, prepared, folder)
    rows += [_theirs(prepared, *each) for each in _THEIRS]
    made = [row for row in rows if not row.failed]
    decided, noise = _decided(network.decision, folder, [prepared, *(row.file for row in made)])
    lines = [
        f"## {title}\n",
        f"{network.what}\n",
        f"| quantized by | {network.scored} | {network.agreed} | noise of the output | s | bytes |",
        "| --- | --- | --- | --- | --- | --- |",
        f"| float | {_percent(network.score(decided[0]))} | | | | {prepared.stat().st_size:,} |",
    ]
    found = dict(zip((row.name for row in made), zip(decided[1:], noise[1:], strict=True), strict=True))
    for row in rows:
        if row.failed:
            lines.append(f"| {row.name} | {row.failed} | | | | |")
            continue
        own, sums = found[row.name]
        lines.append(
            f"| {row.name} | {_percent(network.score(own))} | {_percent(network.agree(own, decided[0]))} | "
            f"{decibels(*sums):.1f} dB | {row.seconds:.0f} | {row.file.stat().st_size:,} |"
        )
    lines.append(f"\n{equal}\n")
    return "\n".join(lines)


def _ours(network: Network, prepared: Path, folder: Path) -> tuple[list[Row], str]:
    """Our files, and how the first one's answers by Octet compare with those by ONNX Runtime."""
    (folder / "scratch").mkdir()
    workshop = Workshop(folder / "scratch", Children(load_settings({"build_nice": 0}), _Silent(), {}))
    rows: list[Row] = []
    started_s = time.monotonic()
    data = Data(folder / "calibration.npy")
    model = prepared.read_bytes()
    calibration = Calibration(model, workshop, data, Options("kl", fit=Fit(biases=True, rounding=True)))
    shared_s = time.monotonic() - started_s
    first = None
    for said, options in {**{method: Options(method) for method in METHODS}, **_FITTED}.items():
        started_s = time.monotonic()
        own = Calibration(model, workshop, data, options) if options.rounds or options.equalize else calibration
        made = own.quantize(options)
        first = first or made
        file = folder / f"octet-{len(rows)}.onnx"
        file.write_bytes(made.file)
        seconds = time.monotonic() - started_s + (shared_s if own is calibration else 0)
        rows.append(Row(f"Octet, {said}", file, seconds))
    assert first is not None
    ours = calibration.measure(first).answers
    _peer("answers", folder / "calibration.npy", folder / "answers.npy", rows[0].file)
    theirs = np.load(folder / "answers.npy").reshape(ours.shape)
    said = "are equal"
    if not np.array_equal(ours, theirs):
        apart = decibels(float((theirs.astype(np.float64) ** 2).sum()), float(((theirs - ours) ** 2).sum()))
        said = f"differ in {np.mean(ours != theirs):.2%} of the values, by noise of {apart:.0f} dB"
    real = ", ".join(f"{number} {kind}" for kind, _, number in first.real) or "nothing"
    return (
        rows,
        f"Answers of `{rows[0].name}` to the calibration inputs, by Octet and ONNX Runtime, {said}. Float: {real}.",
    )


def _theirs(prepared: Path, name: str, tool: str, argument: str) -> Row:
    file = prepared.with_name(f"{tool}-{argument}.onnx")
    try:
        told = _peer(tool, prepared, prepared.with_name("calibration.npy"), file, argument)
    except subprocess.CalledProcessError as error:
        lines = [line for line in str(error.stderr).splitlines() if line.strip()] or ["no message"]
        return Row(name, file, failed=f"fails: {lines[-1][:120]}")
    return Row(name, file, float(told.split()[-1]))


def _decided(decision: str, folder: Path, models: Sequence[Path]) -> tuple[list[Array], Array]:
    """Of each model, what it decides on all inputs; and the squares of the first one's outputs and of what it differs
    by, `[models, 2]`: by ONNX Runtime."""
    _peer("run", folder / "inputs.npy", folder / "decided.npz", decision, *models)
    with np.load(folder / "decided.npz") as found:
        return [found[f"decided_{place}"] for place in range(len(models))], found["sums"]


def _peer(*arguments: object) -> str:
    command = [str(default_home().python("zoo")), str(_SCRIPT), *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _percent(counted: tuple[float, float] | None) -> str:
    return "" if counted is None else f"{100 * counted[0]:.1f} ± {100 * counted[1]:.1f} %"


_HEAD = """# What quantization costs

Written by `python -m benchmarks.quantization` on {machine}.

Each network is quantized from float32 by Octet (`octet quantize`, each method, and `--correct-bias`, `--adaround`,
`--equalize` and `--rounds`), by ONNX Runtime 1.31.1
(`quantize_static`, QDQ, its three methods, on what its `quant_pre_process` makes of the model), and by NNCF 3.4.0
(`nncf.quantize` of the ONNX file, both presets, which correct biases); all with int8 weights by channel and 8-bit
activations, calibrated on the same inputs. All files then run in ONNX Runtime on the same inputs. Calibration sees no
label.

- *± *: the standard error of the share; differences of less than two of them say nothing.
- *noise of the output*: 10 log10 of the float outputs' squares over the squares of what the quantized ones differ by.
- *s*: seconds for calibrating and quantizing on this machine, which was busy otherwise; for Octet with compiling the
  float network and with both passes over the inputs, which all of its methods share.
"""


if __name__ == "__main__":
    main()
