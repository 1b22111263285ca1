"""Writes tables and a plot from the results of a run:

    python -m benchmarks.serving.report [RESULTS.jsonl …]    # prints tables
    python -m benchmarks.serving.report --write              # into benchmarks/RESULTS.md; draws serving.png

Without a file, the latest run's is used. Several files are treated as one run that was cut into pieces.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.harness.home import default_home
from benchmarks.harness.plots import draw
from benchmarks.harness.tables import PAGES, write_section
from benchmarks.serving.records import PART, read
from benchmarks.serving.report.figures import Results
from benchmarks.serving.report.text import PLOT, bars, render


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    results = Results()
    for path in arguments.files or [default_home().latest_results(PART)]:
        results.add_all(read(path))
    if not arguments.write:
        print(render(results))
        return
    panels = bars(results)
    is_drawn = bool(panels) and draw("benchmarks.serving.report.plot", PAGES / PLOT, panels)
    if not is_drawn:
        (PAGES / PLOT).unlink(missing_ok=True)  # the existing plot belongs to another run
    write_section("RESULTS.md", "serving", render(results, is_drawn))


if __name__ == "__main__":
    main()
