"""Compares Octet, stock TVM's own import of the same file, and LiteRT, on one thread.

    python -m benchmarks.contest.stock_tvm mobilenet_v2_1.0_224_quant.tflite

Only the ratios of a run are meaningful on another machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

from benchmarks.harness.contenders import Contender, LiteRT, Octet, Running, StockTVM, random_inputs
from benchmarks.harness.turns import COLUMNS, cores_for, cpu_name, largest_difference, table, take_turns
from service.core.numerics import MODES_OF
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
    inputs, cores = random_inputs(arguments.model), cores_for(1)

    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        contenders: dict[str, Contender] = {STOCK: StockTVM(arguments.model)}
        for mode in modes:
            contenders[f"Octet, {mode}"] = compiled(arguments.model, Path(directory) / mode, mode)
        contenders["LiteRT, xnnpack"] = LiteRT(arguments.model)
        running = {name: stack.enter_context(Running(it, inputs, cores)) for name, it in contenders.items()}
        reference = stack.enter_context(Running(LiteRT(arguments.model, reference=True), inputs, cores)).outputs
        timings = take_turns(running, arguments.rounds, arguments.seconds)

    stock_ms = timings[STOCK].median_ms
    print(f"{arguments.model.name}, batch 1, 1 thread pinned to core {cores[0]}; {cpu_name()}, {parse_target('host')};")
    print(f"apache-tvm {version('apache-tvm')}, ai-edge-litert {version('ai-edge-litert')}; random input\n")
    rows = []
    for name, timing in timings.items():
        difference = largest_difference(running[name].outputs, reference)
        rows.append([name, *timing.cells(), f"{timing.median_ms / stock_ms:.3f}", str(difference)])
    print(table(["", *COLUMNS, "of stock TVM's time", "largest difference from LiteRT's reference kernels"], rows))


def compiled(model: Path, directory: Path, numerics: str) -> Octet:
    """Compiles the model for this host into `directory` as a user would. Raises SystemExit if that fails."""
    command = [sys.executable, "-m", "service.cli", "compile", str(model), "--output", str(directory)]
    done = subprocess.run([*command, "--numerics", numerics, "--json"], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"octet compile failed: {done.stdout}")
    return Octet(directory, json.loads(done.stdout)["artifact"])


if __name__ == "__main__":
    main()
