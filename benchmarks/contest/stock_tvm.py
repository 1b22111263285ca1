"""Compares Octet, stock TVM's own import of the same file, and LiteRT, on one thread.

    python -m benchmarks.contest.stock_tvm mobilenet_v2_1.0_224_quant.tflite

Only the ratios of a run are meaningful on another machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

from benchmarks.harness.artifacts import compile_model
from benchmarks.harness.contestant import ContestantProcess
from benchmarks.harness.frameworks import Job
from benchmarks.harness.machine import cores_for, cpu_name
from benchmarks.harness.predictions import largest_difference
from benchmarks.harness.tables import table
from benchmarks.harness.turns import COLUMNS, take_turns
from service.core.builds.numerics import MODES_OF
from service.core.target import parse_target

STOCK = "stock TVM"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a quantized .tflite file")
    parser.add_argument("--numerics", choices=MODES_OF["tflite"], action="append", help="Octet's modes (default: all)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="duration of each contender's turn in each round")
    parser.add_argument("--stock-only", action="store_true", help="do not compile with Octet")
    arguments = parser.parse_args()
    modes = [] if arguments.stock_only else arguments.numerics or list(MODES_OF["tflite"])
    cores = cores_for(1)

    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:

        def start(framework: str, path: Path, options: dict[str, str] | None = None) -> ContestantProcess:
            job = Job(framework, str(path.absolute()), 1, cores, 1, options or {})
            return stack.enter_context(ContestantProcess(Path(sys.executable), job, Path(directory, "log")))

        running = {STOCK: start("stock_tvm", arguments.model)}
        for mode in modes:
            compile_model(arguments.model, Path(directory) / mode, "--numerics", mode)
            running[f"Octet, {mode}"] = start("octet", Path(directory) / mode)
        running["LiteRT, xnnpack"] = start("litert", arguments.model)
        reference = start("litert", arguments.model, {"kernels": "reference"}).outputs()
        outputs = {name: each.outputs() for name, each in running.items()}
        timings = take_turns(running, arguments.rounds, arguments.seconds)

    stock_ms = timings[STOCK].median_ms
    print(f"{arguments.model.name}, batch 1, 1 thread pinned to core {cores[0]}; {cpu_name()}, {parse_target('host')};")
    print(f"apache-tvm {version('apache-tvm')}, ai-edge-litert {version('ai-edge-litert')}; random input\n")
    rows = []
    for name, timing in timings.items():
        difference = largest_difference(outputs[name], reference)
        rows.append([name, *timing.cells(), f"{timing.median_ms / stock_ms:.3f}", str(difference)])
    print(table(["", *COLUMNS, "of stock TVM's time", "largest difference from LiteRT's reference kernels"], rows))


if __name__ == "__main__":
    main()
