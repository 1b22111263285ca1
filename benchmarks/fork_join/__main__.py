"""Measures the cost and gain of sharing a loop among threads, also beside a busy neighbour:
`python -m benchmarks.fork_join`.

It uses the runtime's threads without a model, on regions with a known amount of arithmetic. The figures are only
meaningful on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.harness.tables import print_table

_COLUMNS = ("neighbour", "work, us", "gap, us", "threads", "regions", "mean", "p50", "p90", "p99", "p99.9")
_NEIGHBOURS = ("none", "bound to a core", "free")
_SPIN = "while True: pass"
_ROOT = Path(__file__).parents[2]
_RUNTIME = _ROOT / "service/native/runtime"
_PARTS = ("parallel", "region", "group", "worker", "team", "core_budget", "placement", "topology", "workspace")

# Microseconds of arithmetic in a region, and between two regions.
_REGIONS = ((0, 0), (0, 20), (0, 500), (5, 2), (20, 2), (200, 2), (2000, 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = compile_program(Path(folder))
        cases = itertools.product(_NEIGHBOURS, _REGIONS, options.threads)
        print_table(_COLUMNS, (_row(program, *case, options.seconds) for case in cases))


def _row(program: Path, neighbour: str, region: tuple[int, int], threads: int, seconds: float) -> list[str]:
    work, gap = region
    arguments = map(str, (threads, work, gap, seconds))
    with _running(neighbour):
        done = subprocess.run([str(program), *arguments], check=True, capture_output=True, text=True)
    return [neighbour, str(work), str(gap), str(threads), *done.stdout.split()]


def compile_program(folder: Path) -> Path:
    program = folder / "fork_join"
    sources = [Path(__file__).with_name("fork_join.cc"), *(_RUNTIME / f"{part}.cc" for part in _PARTS)]
    compiler = [sys.executable, "-m", "ziglang", "c++", "-std=c++17", "-O2", f"-I{_ROOT}", "-pthread"]
    subprocess.run([*compiler, *map(str, sources), "-o", str(program)], check=True)
    return program


@contextmanager
def _running(neighbour: str) -> Iterator[None]:
    """Runs a process that computes in an endless loop, on the last core or on any core that the kernel chooses."""
    if neighbour == "none":
        yield
        return
    with subprocess.Popen([sys.executable, "-c", _SPIN]) as process:
        try:
            if neighbour != "free":
                os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
            yield
        finally:
            process.kill()


if __name__ == "__main__":
    main()
