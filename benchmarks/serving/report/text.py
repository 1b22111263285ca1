"""The report of a run as Markdown, and the figures of its plot."""

from __future__ import annotations

from benchmarks.harness.link import Waiting
from benchmarks.harness.tables import heading, join_sections, plot_of
from benchmarks.serving.records import Overhead, Run
from benchmarks.serving.report import tables
from benchmarks.serving.report.figures import Results

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


def render(results: Results, drawn: bool = False) -> str:
    """Returns Markdown without empty sections. Raises SystemExit for a file without a run's first record."""
    if not results.run:
        raise SystemExit("the file does not begin with a run")
    sections = {}
    titles = tables.titles([*results.models, *(it.model for it in results.of(Overhead))])
    if results.of(Overhead):
        sections[f"Overhead of serving at concurrency 1, {titles[results.of(Overhead)[0].model]}"] = tables.overhead(
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
    machine = machine_of(results.run)
    plot = f"![Answers a second, and their latency]({plot_of('serving', machine)})"
    intro = [heading_of(results.run), *([plot] if drawn else [])]
    return join_sections(f"Serving, beside the peers, {machine}", intro, sections)


def machine_of(run: Run) -> str:
    return f"{run.cpu}, {run.target}"


def heading_of(run: Run) -> str:
    method = _METHOD.format(run=run, generator=_GENERATORS[Waiting(run.generator)])
    return heading(f"{run.started_at}; {run.cpu}, target {run.target}", run.versions, method, run.note)


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
