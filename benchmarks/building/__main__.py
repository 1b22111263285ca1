"""The time of each step from a model file to a verified artifact.

    python -m benchmarks.building MODEL…                  # prints a table
    python -m benchmarks.building --write MODEL…          # and puts it into RESULTS.md

Each model is built in each mode, on all cores, in a process that has already loaded the compiler, like a server's:
`cold` without any cache, `kernels` with the object code of an earlier build, `all` also with the cached import and
expected outputs (a build for another target or with another option). Steps overlap: the oracle and the reference run
while the model is built and linked. The peak of one core is measured in the same run, before and after.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.machine import cpu_name
from benchmarks.harness.tables import table, write_section
from benchmarks.harness.turns import time_calls

MODES = ("xnnpack", "litert-reference")
STEPS = ("import", "build", "oracle", "reference", "link", "verify")
PEAK = "vpdpbusd zmm"
_CALLS = 100


@dataclass(frozen=True)
class Built:
    """One build.

    Attributes:
        kept: the available results of earlier builds: `cold`, `kernels` or `all`.
        cpu_s: processor time of its children, on all cores.
        steps_s: seconds by step; steps that were served from a cache are missing.
    """

    model: str
    mode: str
    kept: str
    total_s: float
    cpu_s: float
    steps_s: dict[str, float]

    def row(self) -> list[str]:
        steps = [f"{self.steps_s[step]:.2f}" if step in self.steps_s else "" for step in STEPS]
        return [self.model, self.mode, self.kept, f"**{self.total_s:.2f}**", f"{self.cpu_s:.1f}", *steps]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="*")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds; the fastest of each build counts")
    parser.add_argument("--write", action="store_true", help="put the table into RESULTS.md")
    parser.add_argument("--peak", action="store_true", help="only print the peak of one core in GMAC/s")
    arguments = parser.parse_args()
    if arguments.peak:
        print(peak())
        return
    text = report(arguments.models, arguments.rounds)
    print(text)
    if arguments.write:
        write_section("RESULTS.md", "building", text, cpu_name())


def report(models: list[Path], rounds: int) -> str:
    """Returns the table, and the machine it was measured on."""
    peaks = [_peak_elsewhere()]
    built = [one for model in models for mode in MODES for one in _fastest(model, mode, rounds)]
    peaks.append(_peak_elsewhere())
    rows = [one.row() for one in built]
    head = ["model", "mode", "kept", "seconds", "CPU seconds", *STEPS]
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[2]
    return (
        f"`python -m benchmarks.building`, {cpu_name()}, {cores} cores, the fastest of {rounds}; load average of the "
        f"last quarter of an hour {load:.1f}.\n`{PEAK}` on one core: {peaks[0]:.0f} GMAC/s before and {peaks[1]:.0f} "
        f"after.\n"
        f"A load average above that of one build means that other processes share the cores. The seconds are then too "
        f"high, while\nCPU seconds divided by the number of cores are too low, because steps wait for each other.\n\n"
        f"{table(head, rows)}"
    )


def _fastest(model: Path, mode: str, rounds: int) -> Iterator[Built]:
    found: dict[str, Built] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="octet-building-") as directory:
            for kept in ("cold", "kernels", "all"):
                one = built(model, mode, kept, Path(directory))
                if kept not in found or one.total_s < found[kept].total_s:
                    found[kept] = one
    yield from found.values()


def built(model: Path, mode: str, kept: str, directory: Path) -> Built:
    """Builds `model`. `kept` determines which results of earlier builds in `directory` are reused."""
    from service.cache import OciLayout
    from service.compiler.build.pipeline import CompileRequest, compile_model
    from service.compiler.sandbox import Access, Limits, run_child
    from service.core.artifacts.artifact import Report
    from service.core.digest import digest_of_file
    from service.core.provenance import Provenance
    from service.core.settings import load_settings
    from service.core.target import parse_target
    from tests.support.compiling import Quiet

    settings = load_settings({"data_dir": directory / "data"})
    if kept == "kernels":
        shutil.rmtree(settings.results_dir)
    scratch = directory / f"scratch-{kept}"
    warming = directory / f"warming-{kept}"
    scratch.mkdir()
    warming.mkdir()
    limits = Limits(wall_s=60, cpu_s=60, memory_bytes=8 << 30, file_bytes=1 << 30)
    access = Access(readable=(model.absolute(),), writable=(warming,))
    run_child("inspect", {"source": str(model.absolute())}, access=access, limits=limits)  # loads the compiler
    layout = OciLayout(directory / f"store-{kept}")
    begun, used = time.perf_counter(), _children_s()
    request = CompileRequest(model, digest_of_file(model), parse_target("host"), mode)
    digest = compile_model(request, layout, scratch, Quiet(), settings)
    total_s, cpu_s = time.perf_counter() - begun, _children_s() - used
    provenance = Provenance.from_bytes(layout.attached(digest, Report.PROVENANCE) or b"", digest)
    return Built(model.stem, mode, kept, total_s, cpu_s, dict(provenance.stages_s))


def peak() -> float:
    """Returns the multiply-accumulates of one core in GMAC/s; the fastest of several calls counts."""
    from benchmarks.peak.instructions import named
    from benchmarks.peak.loops import Loop, prepare_threads

    prepare_threads(1)
    loop = Loop(named(PEAK), 1)
    return loop.macs / min(time_calls(loop.call, 0, _CALLS)) / 1e9


def _peak_elsewhere() -> float:
    """Runs `peak` in a separate process, which pins itself to a core."""
    command = [sys.executable, "-m", "benchmarks.building", "--peak"]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _children_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


if __name__ == "__main__":
    main()
