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
from benchmarks.harness.tables import PAGES, plot_of, write_section
from benchmarks.serving.records import PART, read
from benchmarks.serving.report.figures import Results
from benchmarks.serving.report.text import bars, machine_of, render


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
    text, run = render(results), results.run
    assert run  # otherwise `render` ends the program
    plot = PAGES / plot_of("serving", machine_of(run))
    panels = bars(results)
    is_drawn = bool(panels) and draw("benchmarks.serving.report.plot", plot, panels)
    if not is_drawn:
        plot.unlink(missing_ok=True)  # the existing plot belongs to another run
    write_section("RESULTS.md", "serving", render(results, drawn=True) if is_drawn else text, machine_of(run))


if __name__ == "__main__":
    main()
