"""Compares Octet and its peers in one run:

    python -m benchmarks.contest                                     # all of it: half an hour
    python -m benchmarks.contest --models resnet50 --threads 1 --rounds 3
    python -m benchmarks.contest --peaks-only

Writes a file of JSON lines, whose name it prints, and shows each figure as soon as it is measured.
`python -m benchmarks.contest.report` makes tables from the file.
"""

from __future__ import annotations

import argparse
from importlib.metadata import version
from pathlib import Path

from benchmarks.contest.contestants import contestants_named
from benchmarks.contest.figures import Results
from benchmarks.contest.match import Contest
from benchmarks.contest.records import Run
from benchmarks.harness.home import default_home
from benchmarks.harness.machine import cores_for, cpu_name, timestamp
from benchmarks.harness.rounds import Rules
from benchmarks.models.catalog import rows_named
from benchmarks.peak.instructions import available
from service.core.target import detect_host


def main() -> None:
    arguments = parse_arguments()
    home = default_home()
    rows, contestants = rows_named(arguments.models), contestants_named(arguments.contestants)
    rules = Rules(arguments.rounds, arguments.seconds, arguments.quiet, arguments.repeats)
    instructions = available(detect_host().features)
    path = arguments.output or home.new_results()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x") as output:
        contest = Contest(home, rules, arguments.threads, output, path.with_suffix(".log"), Results())
        contest.record(describe(rules, cores_for(max(arguments.threads)), instructions[0].name, arguments.note))
        contest.peaks(instructions)
        for row in [] if arguments.peaks_only else rows:
            contest.match(row, contestants, instructions[0].name)
    print(f"\n{path}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = Rules()
    parser.add_argument("--models", nargs="+", default=[], help="default: the whole catalog")
    parser.add_argument(
        "--contestants",
        nargs="+",
        default=[],
        help="default: all except slow ones (tvm-fp32); the peak always takes part",
    )
    parser.add_argument("--peaks-only", action="store_true", help="only the peak of each instruction")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=defaults.rounds)
    parser.add_argument("--seconds", type=float, default=defaults.seconds, help="of a turn")
    parser.add_argument("--quiet", type=float, default=defaults.quiet_cpus, help="tolerated CPUs of other load")
    parser.add_argument("--repeats", type=int, default=defaults.repeats, help="repetitions of a turn with more load")
    parser.add_argument("--note", default="", help="said in the report")
    parser.add_argument("--output", type=Path, help="default: a new file in the folder of results")
    return parser.parse_args()


def describe(rules: Rules, cores: list[int], instruction: str, note: str) -> Run:
    return Run(
        started_at=timestamp(),
        cpu=cpu_name(),
        target=detect_host().target.name,
        cores=cores,
        peak=instruction,
        rounds=rules.rounds,
        seconds=rules.seconds,
        quiet_cpus=rules.quiet_cpus,
        repeats=rules.repeats,
        versions={"octet": version("octet-serve"), "apache-tvm": version("apache-tvm")},
        note=note,
    )


if __name__ == "__main__":
    main()
