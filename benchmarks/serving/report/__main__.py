"""Writes tables and a plot from the results of a run:

    python -m benchmarks.serving.report [RESULTS.jsonl …]    # prints tables
    python -m benchmarks.serving.report --write              # into benchmarks/RESULTS.md; draws serving.png

Without a file, the latest run's is used. Several files are treated as one run that was cut into pieces.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

from benchmarks.contest.report import replaced
from benchmarks.harness.home import CHECKOUT, default_home
from benchmarks.harness.link import Waiting
from benchmarks.serving.records import PART, Run, read
from benchmarks.serving.report import tables
from benchmarks.serving.report.figures import Results

BEGIN = "<!-- serving: written by benchmarks.serving.report, from here -->"
END = "<!-- serving: to here -->"
PLOT = "serving.png"
_RESULTS = CHECKOUT / "benchmarks" / "RESULTS.md"

_METHOD = """\
Each server is pinned to core {run.server_core} before it loads anything, the generator of its load to core
{run.client_core}, where it {generator}; numerics mode {run.numerics}. All servers of a model are started, and take
turns in {run.rounds} rounds, A B C, then C B A; waiting servers are stopped (SIGSTOP). The body is one image, [1, 224,
224, 3] of one byte each, over kept-alive connections. Every answer is compared with the first one's bytes, and Octet's
first one with the bare call's. Closed loop: 8 connections, each of which sends its next request when it is answered;
the figure is the median of the rounds. Open loop: constant arrivals at {run.share:.0%} of the contestant's own rate in
the closed loop, over as many connections as that takes. A latency counts from the time at which the request was due (no
coordinated omission), and percentiles are over all rounds together. Octet runs with its defaults and without a compile
worker (`--no-compile`). Peers run the file of the model that was fastest in the contest, with one worker on one thread
and without access logs. All peers but Triton receive the bare image and answer with the bare scores. MLServer's v2 has
no binary tensors over REST, so a custom handler takes the raw body. Memory is that of all processes of a server after
its closed turns: a peer's front ends, workers and helpers, and Octet's supervisor and server. RSS counts a page in each
process that has it, and PSS divides it among them. PSS also divides a page with unrelated processes that map the same
file, such as another contestant with the same interpreter; the bare call, which shares Octet's libraries, has ended by
then. Neither includes files that are only cached, or the kernel's buffers. The column of other CPUs is that of the
busiest turn; above 0.1 a figure means little."""

_GENERATORS = {
    Waiting.POLLING: "polls without sleeping",
    Waiting.BLOCKING: "sleeps until an answer arrives",
}


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
    plot = _RESULTS.with_name(PLOT)
    drawn = draw(results, plot)
    if not drawn:
        plot.unlink(missing_ok=True)  # it belongs to another run
    _RESULTS.write_text(replaced(_RESULTS.read_text(), render(results, drawn), BEGIN, END))


def render(results: Results, drawn: bool = False) -> str:
    """Returns Markdown without empty sections. Raises SystemExit for a file without a run's first record."""
    if not results.run:
        raise SystemExit("the file does not begin with a run")
    sections = {}
    titles = tables.titles([*results.models, *(it.model for it in results.overheads)])
    if results.overheads:
        sections[f"Overhead of serving at concurrency 1, {titles[results.overheads[0].model]}"] = tables.overhead(
            results
        )
    sections["Every road, one core"] = tables.roads(results)
    for model in results.models:
        sections[f"{titles[model]}, one core"] = tables.throughput(results, model)
    sections["Overload"] = tables.overload(results)
    sections["A light model beside a heavy one"] = tables.fairness(results)
    sections["At rest, and until the first answer"] = tables.footprint(results)
    sections["Soak"] = tables.soak(results)
    sections["What failed"] = tables.failures(results)
    parts = ["## Serving, beside the peers", heading_of(results.run)]
    parts += [f"![Answers a second, and their latency]({PLOT})"] if drawn else []
    return "\n\n".join(parts + [f"### {heading}\n\n{text}" for heading, text in sections.items() if text])


def heading_of(run: Run) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    lines = [
        f"{run.started_at}; {run.cpu}, target {run.target}; {versions}.",
        "",
        _METHOD.format(run=run, generator=_GENERATORS[Waiting(run.generator)]),
    ]
    return "\n".join(lines + (["", f"**{run.note}**"] if run.note else []))


def draw(results: Results, output: Path) -> bool:
    """Returns true if the plot was drawn, which needs the environment with matplotlib, and a model."""
    python, panels = default_home().python("plot"), bars(results)
    if not panels or not python.exists():
        print("no plot: run python -m benchmarks.setup_peers --making for the environment that draws it")
        return False
    command = [str(python), "-m", "benchmarks.serving.report.plot", str(output)]
    return not subprocess.run(command, cwd=CHECKOUT, input=json.dumps(panels), text=True, check=False).returncode


def bars(results: Results) -> dict[str, dict[str, list[float]]]:
    """Returns responses per second, p50 and p99 in ms, by model and contestant."""
    panels: dict[str, dict[str, list[float]]] = {}
    for model, title in tables.titles(results.models).items():
        for name in results.contestants(model):
            carried, late = results.carried(model, name), results.lateness(model, name)
            if carried and late:
                figures = [carried.per_s, late.p50_ms, late.p99_ms]
                panels.setdefault(title, {})[results.entries[model, name].title] = figures
    return panels


if __name__ == "__main__":
    main()
