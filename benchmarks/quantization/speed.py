"""Measures the speed of each tool's files, in their own runtime and in Octet: 1 thread, in turns."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.artifacts import NotCompiled, artifact
from benchmarks.harness.frameworks import Job
from benchmarks.harness.home import OWN_ENVIRONMENT, Home
from benchmarks.harness.machine import cores_for
from benchmarks.harness.rounds import Key, ProcessSpec, Rules, play
from benchmarks.harness.tables import table
from benchmarks.quantization.making import DEFAULT
from benchmarks.quantization.records import Record, conditions, describe, folder_of, results_of, write
from service.core.builds.numerics import ONNXRUNTIME, PT2E, XNNPACK
from service.quantize.file.document import Document

# Name of a row -> the framework that runs its file, and the framework's options.
RUNTIMES = {
    DEFAULT: ("", {}),
    "ONNX Runtime, MinMax": ("onnx_runtime", {}),
    "NNCF, performance": ("open_vino", {"precision": "f32"}),
    "torchao, PT2E": ("pytorch_export", {}),
    "AI Edge Quantizer": ("litert", {}),
    "float": ("onnx_runtime", {}),
}
_MODES = {".onnx": ONNXRUNTIME, ".tflite": XNNPACK, ".pt2": PT2E}
_RULES = Rules(rounds=3, seconds=0.15, repeats=1, load_limit_s=120.0)
_NAME = "speed"


@dataclass(frozen=True)
class _Runner:
    """A file in a runtime; `error` is the reason if it cannot run."""

    framework: str
    path: str
    options: dict[str, str]
    error: str = ""


def compile_all(home: Home, records: Sequence[Record]) -> None:
    """Compiles the files that `measure` runs, with Octet."""
    for record in records:
        for row, file in _files(home, record).items():
            print(f"{record.title}, {row}: {_compiled(home, file).error or 'compiled'}", flush=True)


def measure(home: Home, records: Sequence[Record], limit_s: float) -> None:
    """Times the files of one network after the other, and stores the results; starts no network after `limit_s`."""
    begun, found = time.monotonic(), {}
    run = conditions()
    for record in records:
        if time.monotonic() - begun < limit_s:
            found[record.title] = _timed(home, record)
            print(record.title, found[record.title], flush=True)
            write(results_of(home, _NAME), {**run, "networks": found})


def _files(home: Home, record: Record) -> dict[str, Path]:
    there = {row.name: folder_of(home, record.title) / row.file for row in record.rows if not row.failed}
    return {name: there[name] for name in RUNTIMES if name in there}


def _compiled(home: Home, file: Path) -> _Runner:
    try:
        named = file.with_name(f"{file.parent.name}.{file.name}")  # an artifact's folder is named after the file
        if not named.exists():
            named.hardlink_to(file)
        return _Runner("octet", str(artifact(home, named, _MODES[file.suffix])), {})
    except NotCompiled as error:
        return _Runner("octet", "", {}, str(error))


def _timed(home: Home, record: Record) -> dict[str, dict[str, Any]]:
    """Returns, for each row, `{"own": …, "octet": …}`: the median in ms, or the reason why there is none."""
    folder = folder_of(home, record.title)
    np.save(folder / "asked.npy", np.load(folder / "inputs.npy", mmap_mode="r")[:1])
    (name,) = Document((folder / "float.onnx").read_bytes()).inputs
    runners: dict[Key, _Runner] = {}
    for number, (row, file) in enumerate(_files(home, record).items()):
        framework, options = RUNTIMES[row]
        if framework:
            runners[f"{row}/own", number] = _Runner(framework, str(file), options)
        runners[f"{row}/octet", number] = _compiled(home, file)
    found: dict[str, dict[str, Any]] = {}
    medians: dict[Key, list[float]] = {}

    def failed(key: Key, error: object) -> None:
        row, _, where = key[0].partition("/")
        found.setdefault(row, {})[where] = str(error).replace("|", "/").replace("\n", " ")[:120]

    specs: dict[Key, ProcessSpec] = {}
    for key, runner in runners.items():
        if runner.error:
            failed(key, runner.error)
            continue
        inputs = str(folder / "asked.npy") if runner.path.endswith(".onnx") or key[0].endswith("/octet") else ""
        job = Job(runner.framework, runner.path, 1, cores_for(1), 1, {**runner.options, "input": name}, inputs)
        environment = OWN_ENVIRONMENT if runner.framework in ("octet", "litert") else "quantization"
        specs[key] = ProcessSpec(home.python(environment), job)
    for key, _, _, turn in play(specs, folder / "speed.log", _RULES, failed):
        medians.setdefault(key, []).append(turn.median_ms)
    for key, each in medians.items():
        row, _, where = key[0].partition("/")
        found.setdefault(row, {}).setdefault(where, statistics.median(each))
    return found


def section(home: Home) -> str:
    """Returns the stored results as Markdown; empty if none exist."""
    path = results_of(home, _NAME)
    if not path.exists():
        return ""
    run = json.loads(path.read_text())
    rows, failures = [], []
    for title, found in run["networks"].items():
        cells = []
        for row in RUNTIMES:
            for where in ("own", "octet") if row != DEFAULT else ("octet",):
                value = found.get(row, {}).get(where)
                cells.append(f"{value:.3g}" if isinstance(value, float) else "")
                if isinstance(value, str):
                    failures.append(f"- {title}, {row}, in {'Octet' if where == 'octet' else 'its runtime'}: {value}")
        rows.append([title, *cells])
    columns = ["network", DEFAULT]
    for row in [*RUNTIMES][1:]:
        columns += [f"{row}: its runtime", "in Octet"]
    listed = "\n".join(failures)
    return f"""## Speed of each tool's files

Written by `python -m benchmarks.quantization --speed`: {describe(run)}.

Milliseconds a call, the median of {_RULES.rounds} rounds' medians, on 1 thread, all files of a network in turns of
{_RULES.seconds:g} s. Each file runs in its own runtime (ONNX Runtime, OpenVINO, PyTorch's Inductor, LiteRT
with XNNPACK) and, unchanged, in Octet. Octet's own file runs in Octet.

{table(columns, rows)}

{listed}""".strip()
