"""Measures the papers' tables with Octet, and writes docs/reference/paper.md:

    python -m benchmarks.paper                                     # all parts: an hour on a quiet machine
    python -m benchmarks.paper --only accuracy memory              # some parts
    python -m benchmarks.paper --only speed --models resnet50_v1 --threads 1 --rounds 3
    python -m benchmarks.paper --only                              # writes the page from the stored measurements

Each result is stored as soon as it is measured, and earlier results of other rows stay. A part that lacks files or
runtimes prints what is missing, and continues with the next row.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

from benchmarks.harness.home import CHECKOUT, default_home
from benchmarks.harness.rounds import Rules
from benchmarks.paper import accuracy, agreement, memory, recorded, speed, store, targets
from benchmarks.paper.page import page
from benchmarks.paper.store import Measurement, Run

PAGE = CHECKOUT / "docs" / "reference" / "paper.md"
PARTS = (targets.PART, accuracy.PART, agreement.PART, memory.PART, speed.PART)


def main() -> None:
    arguments = parse_arguments()
    home, run = default_home(), Run.begin()
    rules = Rules(arguments.rounds, arguments.seconds, repeats=arguments.repeats)
    measure: dict[str, Callable[[], Iterator[Measurement]]] = {
        targets.PART: lambda: targets.measure(run, store.read()),
        accuracy.PART: lambda: accuracy.measure(run),
        agreement.PART: lambda: agreement.measure(home, run),
        memory.PART: lambda: memory.measure(home, run),
        speed.PART: lambda: speed.measure(home, run, rules, arguments.threads, arguments.models),
    }
    try:
        for part in arguments.only:
            print(f"\n{part}", flush=True)
            store.store(measure[part]())
    finally:
        PAGE.write_text(page([*recorded.measurements(), *store.read()]))
        print(f"\n{PAGE}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = Rules()
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS, help="default: all parts")
    parser.add_argument("--models", nargs="+", default=[], help="of the part speed; default: all of its models")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=defaults.rounds)
    parser.add_argument("--seconds", type=float, default=defaults.seconds, help="of a turn")
    parser.add_argument("--repeats", type=int, default=defaults.repeats, help="repetitions of a disturbed turn")
    return parser.parse_args()


if __name__ == "__main__":
    main()
