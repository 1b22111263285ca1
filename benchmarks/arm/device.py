"""The benchmark that `benchmarks/device.sh` runs on a board: Octet and its peers on the same files, one inference at a
time.

    python -m benchmarks.arm.device FOLDER           # prints a table, and puts it into ARM.md

Needs only Octet's runtime, and the peers that are installed. In each turn, one framework has a process to itself, with
as many cores as threads, the fast ones first. Turns alternate. A figure is the minimum of the turns' medians, because
every disturbance makes a call longer. Peers use the requested number of threads, at their best settings
(`harness.frameworks`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date
from importlib.util import find_spec
from pathlib import Path

from benchmarks.contest.report import replaced
from benchmarks.harness.frameworks import Job, framework
from benchmarks.harness.turns import table
from service.core.cores import computing_cores
from service.core.target import detect_host

_PAGE = Path(__file__).parents[1] / "ARM.md"
_BEGIN, _END = "<!-- measured: written by benchmarks.arm.device, from here -->", "<!-- measured: to here -->"
# By module of `harness.frameworks`: the framework's name, the package that must be installed, and the file that it
# runs.
_FRAMEWORKS = {
    "octet": ("Octet", "service", ".octet"),
    "litert": ("LiteRT", "ai_edge_litert", ".tflite"),
    "onnx_runtime": ("ONNX Runtime", "onnxruntime", ".onnx"),
}
_WARM_S = 0.2


@dataclass(frozen=True)
class Turn:
    """The measurement of one process.

    Attributes:
        median_s: the median time of its calls.
        info: the framework's own description of itself.
    """

    median_s: float
    info: dict[str, object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a turn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turn", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.turn:
        print(json.dumps(asdict(take_turn(Job(**json.loads(asked.turn)), asked.seconds))))
        return
    artifacts = sorted(asked.folder.glob("*.octet"))
    if not artifacts:
        parser.error(f"{asked.folder} has no NAME.octet")
    counts = sorted({1, len(computing_cores())})
    rows = [row for artifact in artifacts for row in _rows(artifact, counts, asked.rounds, asked.seconds)]
    columns = ("model", "target", "threads", *(f"{name}, ms" for name, _, _ in _FRAMEWORKS.values()))
    text = f"{_described(asked.rounds, asked.seconds)}\n\n{table(columns, rows)}"
    print(text)
    _PAGE.write_text(replaced(_PAGE.read_text(), text, _BEGIN, _END))


def take_turn(job: Job, seconds: float) -> Turn:
    """Takes a turn in this process, on the job's cores."""
    os.sched_setaffinity(0, job.cores)
    loaded = framework(job.framework).load(job)
    _times(loaded.call, _WARM_S)
    return Turn(statistics.median(_times(loaded.call, seconds)), loaded.info)


def _times(call: object, seconds: float) -> list[float]:
    assert callable(call)
    times: list[float] = []
    end_s = time.perf_counter() + seconds
    while not times or time.perf_counter() < end_s:
        begun_s = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun_s)
    return times


def _rows(artifact: Path, counts: list[int], rounds: int, seconds: float) -> list[list[str]]:
    rows = []
    for threads in counts:
        taken: dict[str, list[Turn]] = {name: [] for name in _FRAMEWORKS}
        for _ in range(rounds):
            for name, turns in taken.items():
                turns += _turn(name, artifact, threads, seconds)
        target = str(taken["octet"][0].info["target"]) if taken["octet"] else "does not run here"
        rows.append([artifact.stem, target, str(threads), *map(_cell, taken.values())])
    return rows


def _turn(name: str, artifact: Path, threads: int, seconds: float) -> list[Turn]:
    """Takes a turn in a separate process. Prints why, and returns nothing, if the framework is not installed, has no
    such file, or fails.
    """
    _, module, suffix = _FRAMEWORKS[name]
    path = artifact.with_suffix(suffix)
    if find_spec(module) is None or not path.exists():
        return []
    cores = [min(core) for core in computing_cores()[:threads]]
    options = {"call": "bound"} if name == "octet" else {}
    job = json.dumps(asdict(Job(name, str(path), threads, cores, 1, options)))
    command = [
        sys.executable,
        "-m",
        "benchmarks.arm.device",
        str(artifact.parent),
        "--seconds",
        str(seconds),
        "--turn",
        job,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{name} on {path.name}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}", file=sys.stderr)
        return []
    said: Mapping[str, object] = json.loads(done.stdout.splitlines()[-1])
    return [Turn(float(str(said["median_s"])), dict(json.loads(json.dumps(said["info"]))))]


def _cell(turns: list[Turn]) -> str:
    return f"{min(turn.median_s for turn in turns) * 1e3:.3g}" if turns else "-"


def _described(rounds: int, seconds: float) -> str:
    host, kernel = detect_host(), os.uname()
    machine = host.model_name or f"an unnamed {host.architecture} machine"
    best = host.best.name if host.best else "no target"
    cores = f"{len(computing_cores())} cores that compute"
    return (
        f"On {machine} ({best}, {cores}, Linux {kernel.release}), {date.today()}: one inference at a time, inputs "
        f"bound, the least of {rounds} medians of {seconds:g} s, in ms."
    )


if __name__ == "__main__":
    main()
