"""Measures the speed of int8 over float32 by the same compiler, on the contest's models that exist in both forms; takes
ten minutes.

    python -m benchmarks.contest.gain --compile   # creates and compiles the models, once: half an hour
    python -m benchmarks.contest.gain             # measures, and writes that part of RESULTS.md

A model's two forms run in turns, on 1 thread. The geometric mean of the ratios is printed beside the ratio of the
instructions' peaks, which are measured in the same run. The float form of a given quantized file contains the weights
of this file multiplied by their scales.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator

from benchmarks.contest import tables
from benchmarks.contest.__main__ import describe
from benchmarks.contest.contestants import contestants_for, contestants_named
from benchmarks.contest.figures import Results
from benchmarks.contest.match import Contest
from benchmarks.contest.report import heading_of, machine_of
from benchmarks.harness.artifacts import NotCompiled, artifact
from benchmarks.harness.home import Home, default_home
from benchmarks.harness.machine import cores_for
from benchmarks.harness.rounds import Rules
from benchmarks.harness.tables import write_section
from benchmarks.models.__main__ import make
from benchmarks.models.catalog import ROWS, Row
from benchmarks.peak.instructions import available
from service.core.target import detect_host

_CONTESTANTS = contestants_named(["octet-xnnpack", "octet-onnx", "octet-fp32", "octet-fp32-tflite"])
_METHOD = """\
Written by `python -m benchmarks.contest.gain`. Each model in int8 and in float32, both compiled by Octet, on 1 thread
pinned to a core, in turns of {seconds:g} s in {rounds} rounds; a figure is the median of the rounds' medians. A model
of nothing but multiply-accumulates would gain the ratio of the instructions' peaks, which are taken in the same run. A
star marks a figure of which most rounds were disturbed."""


def twins() -> Iterator[Row]:
    """Yields the catalog's models with files of one format in both forms, at batch 1."""
    for row in ROWS:
        for form in ("onnx", "tflite"):
            pair = (form, f"{form}_fp32")
            if row.batch == 1 and all(each in row.files for each in pair):
                yield Row(row.name, row.title, {each: row.files[each] for each in pair}, row.shape, note=row.note)
                break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--models", nargs="+", default=[], help="default: all with both forms")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    home, rules = default_home(), Rules(arguments.rounds, repeats=1)
    rows = [row for row in twins() if row.name in (arguments.models or [row.name]) and _make_files(home, row)]
    if arguments.compile:
        for row in rows:
            _compile(home, row)
        return
    instructions = available(detect_host().features)
    path = home.new_results("gain")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x") as output:
        contest = Contest(home, rules, [1], output, path.with_suffix(".log"), Results())
        run = describe(rules, cores_for(1), instructions[0].name, "")
        contest.record(run)
        contest.peaks(instructions)
        for row in rows:
            contest.match(row, _CONTESTANTS, instructions[0].name)
    method = _METHOD.format(seconds=rules.seconds, rounds=rules.rounds)
    machine = machine_of(run)
    parts = [f"## int8 beside float32, {machine}", heading_of(run, method), tables.own_float32(contest.results)]
    write_section("RESULTS.md", "gain", "\n\n".join(parts), machine)
    print(f"\n{parts[-1]}\n\n{path}")


def _make_files(home: Home, row: Row) -> bool:
    """Returns true if the model's files exist or could be created."""
    for file in sorted(
        row.files.values(), key=lambda name: "fp32" not in name
    ):  # files from which others are created come first
        if home.model(file) is None:
            try:
                make(home, file)
            except (OSError, ValueError, subprocess.CalledProcessError) as error:
                print(f"{row.title}: left out, {file} could not be created: {error}", flush=True)
                return False
    return True


def _compile(home: Home, row: Row) -> None:
    for contestant in contestants_for(row, _CONTESTANTS):
        model = home.model(row.files[contestant.file]) if contestant.file else None
        if model is not None:
            shape = (row.batch, *row.shape) if contestant.file.startswith("onnx") and row.shape else ()
            try:
                print(row.title, contestant.name, artifact(home, model, contestant.numerics, shape).name, flush=True)
            except NotCompiled as error:
                print(row.title, contestant.name, error, flush=True)


if __name__ == "__main__":
    main()
