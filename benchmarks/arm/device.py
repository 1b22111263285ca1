"""The benchmark that `benchmarks/device.sh` runs on a board: Octet and its peers on the same files, one inference at a
time.

    python -m benchmarks.arm.device FOLDER           # prints a table, and puts it into ARM.md

Needs only Octet's runtime, and the peers that are installed. Each framework runs in its own process, on as many cores
as threads; fast cores are used first. The processes take alternating turns, and are stopped between their turns. A
figure is the minimum of the turns' medians, because every disturbance makes a call longer. Peers use the requested
number of threads, at their best settings (`harness.frameworks`).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from datetime import date
from importlib.util import find_spec
from pathlib import Path

from benchmarks.harness.contestant import ContestantProcess
from benchmarks.harness.frameworks import Job
from benchmarks.harness.rounds import Key, ProcessSpec, Rules, play
from benchmarks.harness.tables import table, write_section
from service.core.system.cores import computing_cores
from service.core.target import detect_host

# By module of `harness.frameworks`: the framework's name, the package that must be installed, and the file that it
# runs.
_FRAMEWORKS = {
    "octet": ("Octet", "service", ".octet"),
    "litert": ("LiteRT", "ai_edge_litert", ".tflite"),
    "onnx_runtime": ("ONNX Runtime", "onnxruntime", ".onnx"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a turn")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    artifacts = sorted(arguments.folder.absolute().glob("*.octet"))
    if not artifacts:
        parser.error(f"{arguments.folder} has no NAME.octet")
    rules = Rules(arguments.rounds, arguments.seconds, repeats=0)
    rows = [row for artifact in artifacts for row in _rows(artifact, sorted({1, len(computing_cores())}), rules)]
    columns = ("model", "target", "threads", *(f"{name}, ms" for name, _, _ in _FRAMEWORKS.values()))
    text = f"{_described(rules)}\n\n{table(columns, rows)}"
    print(text)
    write_section("ARM.md", "measured", text)


def _rows(artifact: Path, counts: list[int], rules: Rules) -> Iterator[list[str]]:
    """Yields a row for each number of threads. Prints why a framework fails."""
    medians_ms: dict[Key, list[float]] = {}
    targets: dict[Key, str] = {}
    keys = [(name, threads) for threads in counts for name in _FRAMEWORKS]
    specs = {key: spec for key in keys if (spec := _spec(artifact, *key))}

    def failed(key: Key, error: Exception) -> None:
        print(f"{key[0]} on {Path(specs[key].job.path).name}: {error}", file=sys.stderr)

    def loaded(key: Key, process: ContestantProcess) -> None:
        targets[key] = str(process.info.get("target"))

    with tempfile.TemporaryDirectory() as folder:
        for key, _, _, turn in play(specs, Path(folder, "log"), rules, failed, loaded):
            medians_ms.setdefault(key, []).append(turn.median_ms)
    for threads in counts:
        cells = [medians_ms.get((name, threads)) for name in _FRAMEWORKS]
        target = targets.get(("octet", threads), "does not run here")
        yield [artifact.stem, target, str(threads), *(f"{min(cell):.3g}" if cell else "-" for cell in cells)]


def _spec(artifact: Path, name: str, threads: int) -> ProcessSpec | None:
    """Returns the process of a framework; None if it is not installed, or has no such file."""
    _, module, suffix = _FRAMEWORKS[name]
    path = artifact.with_suffix(suffix)
    if find_spec(module) is None or not path.exists():
        return None
    cores = [min(core) for core in computing_cores()[:threads]]
    options = {"call": "bound"} if name == "octet" else {}
    return ProcessSpec(Path(sys.executable), Job(name, str(path), threads, cores, 1, options))


def _described(rules: Rules) -> str:
    host, kernel = detect_host(), os.uname()
    machine = host.model_name or f"an unnamed {host.architecture} machine"
    best = host.best.name if host.best else "no target"
    cores = f"{len(computing_cores())} cores that compute"
    return (
        f"On {machine} ({best}, {cores}, Linux {kernel.release}), {date.today()}: one inference at a time, inputs "
        f"bound, the least of {rules.rounds} medians of {rules.seconds:g} s, in ms."
    )


if __name__ == "__main__":
    main()
