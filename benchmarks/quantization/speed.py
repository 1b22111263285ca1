"""Measures the speed of each tool's files, in their own runtime and in Octet: 1 thread, in turns."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.artifacts import NotCompiled, artifact
from benchmarks.harness.contestant import ContestantFailed, ContestantProcess
from benchmarks.harness.frameworks import Job
from benchmarks.harness.home import OWN_ENVIRONMENT, Home
from benchmarks.harness.rounds import Key, Rules, take_turns
from benchmarks.harness.turns import cores_for, cpu_name, table
from benchmarks.quantization.making import DEFAULT
from benchmarks.quantization.records import Record, folder_of, results_of, write
from service.core.numerics import ONNXRUNTIME, PT2E, XNNPACK
from service.quantize.document import Document

# Row -> the framework of its file, and its options there. Octet's file runs in Octet.
RUNTIMES = {
    DEFAULT: ("", {}),
    "ONNX Runtime, MinMax": ("onnx_runtime", {}),
    "NNCF, performance": ("open_vino", {"precision": "f32"}),
    "torchao, PT2E": ("pytorch_export", {}),
    "AI Edge Quantizer": ("litert", {}),
    "float": ("onnx_runtime", {}),
}
_MODES = {".onnx": ONNXRUNTIME, ".tflite": XNNPACK, ".pt2": PT2E}
_RULES = Rules(rounds=3, seconds=0.15, repeats=1)
_LOAD_LIMIT_S = 120.0
_NAME = "speed"


@dataclass(frozen=True)
class _Runner:
    """A file in a runtime; `said` is the reason if it cannot run."""

    framework: str
    path: str
    options: dict[str, str]
    said: str = ""


def compile_all(home: Home, records: Sequence[Record]) -> None:
    """Compiles the files that `measure` runs, with Octet."""
    for record in records:
        for row, file in _files(home, record).items():
            print(f"{record.title}, {row}: {_compiled(home, file).said or 'compiled'}", flush=True)


def measure(home: Home, records: Sequence[Record], limit_s: float) -> None:
    """Times the files of one network after the other, and stores the results; starts no network after `limit_s`."""
    begun, found = time.monotonic(), {}
    run = {"at": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", "machine": cpu_name(), "load": os.getloadavg()[0]}
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
    for place, (row, file) in enumerate(_files(home, record).items()):
        framework, options = RUNTIMES[row]
        if framework:
            runners[f"{row}/own", place] = _Runner(framework, str(file), options)
        runners[f"{row}/octet", place] = _compiled(home, file)
    found: dict[str, dict[str, Any]] = {}
    medians: dict[Key, list[float]] = {}
    with ExitStack() as stack:
        playing: dict[Key, ContestantProcess] = {}
        for key, runner in runners.items():
            row, _, where = key[0].partition("/")
            try:
                if runner.said:
                    raise ContestantFailed(runner.said)
                asked = str(folder / "asked.npy") if runner.path.endswith(".onnx") or where == "octet" else ""
                options = {**runner.options, "input": name}
                job = Job(runner.framework, runner.path, 1, cores_for(1), 1, options, asked)
                environment = OWN_ENVIRONMENT if runner.framework in ("octet", "litert") else "quantization"
                process = ContestantProcess(home.python(environment), job, folder / "speed.log", _LOAD_LIMIT_S)
                playing[key] = stack.enter_context(process)
            except ContestantFailed as error:
                found.setdefault(row, {})[where] = _short(str(error))

        def failed(key: Key, error: ContestantFailed) -> None:
            row, _, where = key[0].partition("/")
            found.setdefault(row, {})[where] = _short(str(error))

        for key, _, _, turn in take_turns(playing, _RULES, failed):
            medians.setdefault(key, []).append(turn.median_ms)
    for key, each in medians.items():
        row, _, where = key[0].partition("/")
        found.setdefault(row, {}).setdefault(where, statistics.median(each))
    return found


def _short(said: str) -> str:
    return said.replace("|", "/").replace("\n", " ")[:120]


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
    said = "\n".join(failures)
    taken = f"{run['at']}, {run['machine']}, load average {run['load']:.1f} at the start"
    return f"""## Speed of each tool's files

Written by `python -m benchmarks.quantization --speed`: {taken}.

Milliseconds a call, the median of {_RULES.rounds} rounds' medians, on 1 thread, all files of a network in turns of
{_RULES.seconds:g} s. Each file runs in its own runtime (ONNX Runtime, OpenVINO, PyTorch's Inductor, LiteRT
with XNNPACK) and, unchanged, in Octet. Octet's own file runs in Octet.

{table(columns, rows)}

{said}""".strip()
