"""Writes tables and a plot from the results of a contest:

    python -m benchmarks.contest.report RESULTS.jsonl            # prints tables
    python -m benchmarks.contest.report RESULTS.jsonl --write    # writes them into RESULTS.md, and draws contest.png

The tables replace the sections of RESULTS.md for the models in the run: the catalog's own models, the networks of its
part `zoo`, or both. Without a file, that of the latest contest is used. Several files are treated as one run that was
cut into pieces; if two files have the same round, the quieter turn counts.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.contest import tables
from benchmarks.contest.contestants import CONTESTANTS, PEAK
from benchmarks.contest.figures import Results
from benchmarks.contest.records import Run, read
from benchmarks.harness.home import default_home
from benchmarks.harness.plots import draw
from benchmarks.harness.tables import PAGES, heading, join_sections, plot_of, write_section
from benchmarks.models.catalog import ZOO

CONTEST = ""  # The catalog's part without a name.
SECTIONS = {CONTEST: "contest", ZOO: "zoo"}  # Part of the catalog -> its section of RESULTS.md.

_METHOD = """\
Each contestant, model and number of threads has a process of its own, pinned to its cores (1 thread: the first)
before it loads anything. The processes take turns of {seconds:g} s, A B C, then C B A, in {rounds} rounds, and are
stopped in between. A figure is the median of the rounds' median latencies. A turn during which other processes kept
more than {quiet:g} CPUs busy is repeated, at most {repeats} times. A round without a quiet turn does not count,
unless no round has one; a star marks a figure for which more than half of the rounds had none. The inputs of peers
are bound beforehand and their outputs are not copied. Octet is called as users call it, by `Model.run`, which checks
inputs and copies outputs. The limit is the time of the model's multiply-accumulates at the peak. The peak is the
fastest repetition of a loop of `{peak}` on the same cores, which takes turns with the contestants. Contestants with
bf16 use it for parts that they do not compute in integers, and count as peers. The batch size is 1 unless a model's
name gives another."""
_ZOO_METHOD = """\
ONNX files with random weights, made by each network's own tools, in the numerics mode onnxruntime. Turns and medians
are as in "Side by side with the peers": {rounds} rounds of {seconds:g} s."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    results = Results()
    for record in read(arguments.files or [default_home().latest_results()]):
        results.add(record)
    parts = rendered(results)
    if not arguments.write:
        print("\n\n".join(parts.values()))
        return
    assert results.run
    machine = machine_of(results.run)
    plot = plot_of("contest", machine)
    if CONTEST in parts and not draw("benchmarks.contest.plot", PAGES / plot, shares(results)):
        raise SystemExit(f"{plot} was not drawn")
    for part, text in parts.items():
        write_section("RESULTS.md", SECTIONS[part], text, machine)


def rendered(results: Results) -> dict[str, str]:
    """Returns, as Markdown, the section of each part of the catalog that the run contains."""
    found = {model.part for model in results.models.values()}
    made = {CONTEST: _contest, ZOO: _zoo}
    return {part: render(results) for part, render in made.items() if part in found}


def _contest(results: Results) -> str:
    assert results.run
    sections = {"The peak": tables.peaks(results)}
    for contestant in tables.OCTET:
        for threads in results.threads:
            sections[f"{contestant.title}, {where(results.run, threads)}"] = tables.octet(results, contestant, threads)
    for threads in results.threads:
        sections[f"All contestants, int8, median ms, {where(results.run, threads)}"] = tables.everybody(
            results, threads
        )
    sections["Against float32 of the same model"] = tables.float32(results)
    sections["int8 against float32 by the same compiler"] = tables.own_float32(results)
    sections["What the numerics mode costs"] = tables.modes(results)
    sections["Asymmetric and symmetric weights of one model"] = tables.symmetry(results)
    sections["Contestants that could not take part"] = tables.failures(results)
    method = _METHOD.format(
        seconds=results.run.seconds,
        rounds=results.run.rounds,
        quiet=results.run.quiet_cpus,
        repeats=results.run.repeats,
        peak=results.run.peak,
    )
    intro = [heading_of(results.run, method), f"![Shares of the peak]({plot_of('contest', machine_of(results.run))})"]
    return join_sections(f"Side by side with the peers, {machine_of(results.run)}", intro, sections)


def _zoo(results: Results) -> str:
    assert results.run
    sections = {f"The zoo, {where(results.run, threads)}": tables.zoo(results, threads) for threads in results.threads}
    sections["Those that could not take part"] = tables.failures(results, ZOO)
    method = _ZOO_METHOD.format(rounds=results.run.rounds, seconds=results.run.seconds)
    title = f"Today's networks, beside ONNX Runtime and OpenVINO, {machine_of(results.run)}"
    return join_sections(title, [heading_of(results.run, method)], sections)


def machine_of(run: Run) -> str:
    return f"{run.cpu}, {run.target}"


def heading_of(run: Run, method: str) -> str:
    facts = f"{run.started_at}; {run.cpu}, {len(run.cores)} cores, target {run.target}"
    return heading(facts, run.versions, method, run.note)


def where(run: Run, threads: int) -> str:
    cores = run.cores[:threads]
    if threads == 1:
        return f"1 thread pinned to core {cores[0]}"
    return f"{threads} threads pinned to cores {', '.join(map(str, cores))}"


def shares(results: Results) -> dict[str, dict[str, dict[str, float]]]:
    """Returns the percent of the peak by threads, model and framework. Of several settings of a framework, the fastest
    counts.
    """
    assert results.run
    found: dict[str, dict[str, dict[str, float]]] = {}
    for threads in results.threads:
        panel = found.setdefault(where(results.run, threads), {})
        for name, model in results.models.items():
            if model.part:
                continue
            row = panel.setdefault(model.title, {})
            for contestant in CONTESTANTS:
                percent = results.percent_of_peak(name, contestant.name, threads)
                if percent and contestant.name != PEAK and not contestant.is_fp32:
                    label = contestant.title if contestant.is_octet else contestant.title.partition(" (")[0]
                    row[label] = max(percent, row.get(label, 0.0))
    return found


if __name__ == "__main__":
    main()
