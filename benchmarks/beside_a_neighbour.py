"""Measures the effect of a busy neighbour on a model's calls: `python -m benchmarks.beside_a_neighbour MODEL...`.

One process calls the model as fast as it can, by a bound call, on one thread and on two; the threads may run on all
cores. A neighbour process computes in an endless loop, on the last core or on any core that the kernel chooses. One and
two threads take turns of 100 ms each. Percentiles are over single calls. The last two columns compare two threads with
one, beside the same neighbour: above 1, two threads are slower.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.neighbours import NEIGHBOURS, busy
from service.core.arrays import Array
from service.core.buffers import aligned_empty, as_aligned
from service.core.vectors import sample_inputs
from service.runtime import load
from service.runtime.model import Model

_SETTLED_CALLS = 100  # in its first calls, the runtime measures how many threads each kernel is worth
_TURN_S = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each neighbour")
    options = parser.parse_args()
    print(
        "| model | neighbour | threads | calls | p50 us | p99 us | p99.9 us | p50 by 1 thread's | p99 by 1 thread's |"
    )
    print("| --- " * 9 + "|")
    for model in options.models:
        for neighbour, rows in measured(model, options.seconds).items():
            alone = percentiles(rows[1])
            for threads, calls_us in rows.items():
                own = percentiles(calls_us)
                figures = [f"{value:.1f}" for value in own] + [f"{own[at] / alone[at]:.2f}" for at in (0, 1)]
                print(
                    "|",
                    " | ".join([model.name, neighbour, str(threads), str(len(calls_us)), *figures]),
                    "|",
                    flush=True,
                )


def measured(model: Path, seconds: float) -> dict[str, dict[int, Array]]:
    """Returns the microseconds of each call, by neighbour and number of threads."""
    with tempfile.TemporaryDirectory() as folder:
        artifact = Path(folder, "artifact")
        command = [sys.executable, "-m", "service.cli", "compile", str(model), "--output", str(artifact), "--json"]
        subprocess.run(command, check=True, capture_output=True)
        models = {threads: bound(artifact, threads) for threads in (1, 2)}
        found = {}
        for neighbour in NEIGHBOURS:
            with busy(neighbour):
                turns: dict[int, list[Array]] = {threads: [] for threads in models}
                for _ in range(max(1, round(seconds / _TURN_S / len(models)))):
                    for threads, each in models.items():
                        turns[threads].append(calls_us(each, _TURN_S))
                found[neighbour] = {threads: np.concatenate(each) for threads, each in turns.items()}
    return found


def bound(artifact: Path, threads: int) -> Model:
    model = load(artifact, threads=threads)
    inputs = [as_aligned(array) for array in sample_inputs(model.signature, 2)[1]]
    model.bind(inputs, [aligned_empty(spec.shape, spec.dtype) for spec in model.signature.outputs])
    for _ in range(_SETTLED_CALLS):
        model()
    return model


def calls_us(model: Model, seconds: float) -> Array:
    taken, before = [], time.perf_counter()
    until = before + seconds
    while before < until:
        model()
        after = time.perf_counter()
        taken.append(1e6 * (after - before))
        before = after
    return np.array(taken)


def percentiles(values: Array) -> list[float]:
    return [float(value) for value in np.percentile(values, (50, 99, 99.9))]


if __name__ == "__main__":
    main()
