"""The tables of the report, as Markdown. A table without rows is empty."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.harness.tables import TIMES, table
from benchmarks.serving.clients.load import median, percentile
from benchmarks.serving.contestants import BARE, FLOOR, OCTET, SERVED
from benchmarks.serving.records import Failure, Fairness, Footprint, Overhead, Overload, Road, Soak
from benchmarks.serving.report.figures import Lateness, Results

_ERROR_LENGTH = 300


def overhead(results: Results) -> str:
    """Returns the time that each server adds to the bare call of the same round."""
    bare = next((it for it in results.of(Overhead) if it.contender == BARE), None)
    if not bare:
        return ""
    rows = []
    for it in results.of(Overhead):
        without_ms = [it.busy_ms] * len(it.medians_ms) if it.contender == FLOOR else bare.medians_ms
        added = [1e3 * (own - base) for own, base in zip(it.medians_ms, without_ms, strict=True)]
        cells = [f"**{median(added):.0f}**", f"{min(added):.0f} to {max(added):.0f}"]
        row = [it.title, "" if it is bare else it.client, it.encoding, f"{median(it.medians_ms):.3f}"]
        rows.append([*row, *([""] * 2 if it is bare else cells), str(it.calls), f"{it.other_cpus:.2f}"])
    columns = ["", "client", "body", "median ms", "added µs", "in the rounds", "calls", "other CPUs"]
    return table(columns, rows)


def roads(results: Results) -> str:
    """Returns each way to each model: the medians of the rounds, and the ratios to the first way's."""
    rows = []
    for model, connections in dict.fromkeys((it.model, it.connections) for it in results.of(Road)):
        turns = [it for it in results.of(Road) if (it.model, it.connections) == (model, connections)]
        first: list[Road] = []
        for title in dict.fromkeys(it.title for it in sorted(turns, key=lambda it: it.round)):
            own = sorted((it for it in turns if it.title == title), key=lambda it: it.round)
            first = first or own
            rates = [it.per_s for it in own]
            added = [1e3 * (it.p50_ms - base.p50_ms) for it, base in zip(own, first, strict=True)]
            share = median([it.per_s / base.per_s for it, base in zip(own, first, strict=True)])
            cpu = median([base.server_us / it.server_us for it, base in zip(own, first, strict=True)])
            row = [model, str(connections), title, str(own[0].request_bytes), f"**{median(rates):.0f}**"]
            row += [
                f"{min(rates):.0f} to {max(rates):.0f}",
                f"**{share:.0%}**",
                f"{1e3 * median([it.p50_ms for it in own]):.0f}",
            ]
            row += [f"{median(added):+.0f}", f"{1e3 * median([it.p99_ms for it in own]):.0f}"]
            row += [
                f"{median([it.server_us for it in own]):.1f}",
                f"{cpu:.0%}",
                f"{max(it.other_cpus for it in own):.2f}",
            ]
            rows.append(row)
    columns = ["model", "connections", "road", "body bytes", "answers/s", "in the rounds", "of the first", "p50 µs"]
    columns += ["added to the first's µs", "p99 µs", "server CPU µs", "its rate by CPU of the first", "other CPUs"]
    return table(columns, rows) if rows else ""


def throughput(results: Results, model: str) -> str:
    """Returns the table of Octet and its peers on one model."""
    bare = results.carried(model, BARE)
    columns = ["", "body", "answers/s, 8 connections", "in the rounds", "of 1 / bare call", f"Octet's {TIMES}"]
    columns += ["open loop, arrivals/s", "p50 ms", "p99 ms", "p99 / p50", "RSS MiB", "PSS MiB", "other CPUs", "not 200"]
    rows = []
    for name in results.contestants(model):
        entry, carried, late = results.entries[model, name], results.carried(model, name), results.lateness(model, name)
        assert carried
        times = results.times(model, OCTET, name)
        row = [entry.title, _encoding(results, model, name), f"**{carried.per_s:.1f}**"]
        row += [f"{carried.low_per_s:.1f} to {carried.high_per_s:.1f}"]
        row += [f"{carried.per_s / bare.per_s:.1%}" if bare else "", f"{times:.2f}" if times and name != OCTET else ""]
        row += _late(late) if late else [""] * 4
        row += [f"{entry.rss_mib:.0f}", f"{entry.pss_mib:.0f}", f"{results.other_cpus(model, name):.2f}"]
        rows.append([*row, results.unlike_200(model, name)])
    if not rows:
        return ""
    return f"{table(columns, rows)}\n\n{_verdict(results, model)}"


def _late(late: Lateness) -> list[str]:
    return [f"{late.rate:.1f}", f"{late.p50_ms:.2f}", f"{late.p99_ms:.2f}", f"{late.spread:.2f}"]


def _verdict(results: Results, model: str) -> str:
    """Compares Octet with the best peer, in sentences."""
    bare, octet, late = results.carried(model, BARE), results.carried(model, OCTET), results.lateness(model, OCTET)
    sentences = []
    if bare:
        sentences.append(
            f"The bare call takes {1e3 / bare.per_s:.3f} ms, so a core that did nothing else would serve "
            f"{bare.per_s:.1f} requests a second."
        )
    if bare and octet:
        sentences.append(f"Octet serves {octet.per_s / bare.per_s:.1%} of that.")
    if late:
        sentences.append(f"Octet's p99 is {late.spread:.2f} {TIMES} its p50 over {late.count} requests.")
    peer = results.best_peer(model)
    if peer and octet:
        sentences.append(_beside(results, model, peer))
    return " ".join(sentences)


def _beside(results: Results, model: str, peer: str) -> str:
    ours, theirs = results.lateness(model, OCTET), results.lateness(model, peer)
    times, title = results.times(model, OCTET, peer), results.entries[model, peer].title
    text = f"The best peer is {title}: Octet serves {times:.2f} {TIMES} as much"
    if ours and theirs:
        text += f", with a p99 of {ours.p99_ms:.2f} ms beside {theirs.p99_ms:.2f} ms, each at its own load"
    least = min((it.pss_mib, it.title) for (of, name), it in results.entries.items() if of == model and name != OCTET)
    return (
        f"{text}. The peer with the least memory takes {least[0]:.0f} MiB (PSS; {least[1]}), Octet "
        f"{results.entries[model, OCTET].pss_mib:.0f} MiB."
    )


def _encoding(results: Results, model: str, name: str) -> str:
    return next(turn.encoding for turn in results.turns if (turn.model, turn.contestant) == (model, name))


def overload(results: Results) -> str:
    """Returns a table for each model."""
    tables = []
    for it in results.of(Overload):
        before, most, after = it.rss_mib
        rows = [
            ["load", f"{it.factor:g} {TIMES} capacity for {it.seconds:.0f} s, constant arrivals{_short(it)}"],
            ["capacity, 8 connections", f"{it.capacity_per_s:.1f} /s"],
            ["goodput", f"{it.goodput_per_s:.1f} /s, **{it.goodput_per_s / it.capacity_per_s:.1%}**"],
            ["answered: p50, p99", f"{it.served_p50_ms:.0f} ms, {it.served_p99_ms:.0f} ms"],
            ["refused: p50, p99", f"{it.refused_p50_ms:.1f} ms, **{it.refused_p99_ms:.1f} ms**"],
            ["answers by status", _counts(it.statuses)],
            ["wrong answers", str(it.wrong)],
            ["recovered after", f"**{it.recovery_s:.2f} s**"],
            ["RSS before, at most, after", f"{before:.0f}, {most:.0f}, {after:.0f} MiB"],
            ["CPUs busy with other work", f"{it.other_cpus:.2f}"],
        ]
        tables.append(table([f"{it.model}, {it.encoding}", "measured"], rows))
    return "\n\n".join(tables)


def _short(it: Overload) -> str:
    return f"; the generator's cores could send {it.sent_factor:.1f} {TIMES}" if it.unsent else ""


def fairness(results: Results) -> str:
    """Returns the light model's latencies, alone and beside the heavy one."""
    rows = []
    for it in results.of(Fairness):
        alone, beside = sorted(it.alone_ms), sorted(it.beside_ms)
        row = [f"{it.light}, {it.rate:g} /s, beside {it.heavy} with {it.connections} clients", str(it.cores)]
        row += [f"{percentile(alone, percent):.2f}, **{percentile(beside, percent):.2f}**" for percent in (50, 99)]
        row += [f"{it.call_ms:.2f}", f"{it.heavy_alone_per_s:.1f}, {it.heavy_beside_per_s:.1f}"]
        rows.append([*row, _counts(it.statuses), f"{it.other_cpus:.2f}"])
    columns = ["", "cores", "p50 ms, alone and beside", "p99 ms, alone and beside", "one heavy call, p99 ms"]
    return table([*columns, "heavy answers/s, alone and beside", "statuses", "other CPUs"], rows) if rows else ""


def footprint(results: Results) -> str:
    """Returns, for each command, the median of its rounds, and all of its processes."""
    rows = []
    for title in dict.fromkeys(it.title for it in results.of(Footprint)):
        own = [it for it in results.of(Footprint) if it.title == title]
        answered = sorted(it.answered_s for it in own)
        total = sorted(sum(it.pss_mib.values()) for it in own)
        names = dict.fromkeys(name for it in own for name in it.pss_mib)
        parts = [f"{name} {median([it.pss_mib.get(name, 0.0) for it in own]):.1f}" for name in names]
        row = [f"{title}, {own[0].model}", f"**{median(answered):.2f}**", f"{answered[0]:.2f} to {answered[-1]:.2f}"]
        row += [f"**{median(total):.1f}**", f"{total[0]:.1f} to {total[-1]:.1f}", ", ".join(parts)]
        rows.append([*row, f"{max(it.other_cpus for it in own):.2f}"])
    columns = ["", "first answer after s", "in the rounds", "PSS MiB at rest", "in the rounds", "by process"]
    return table([*columns, "other CPUs"], rows) if rows else ""


def soak(results: Results) -> str:
    rows = []
    for it in results.of(Soak):
        rows += [
            ["time", f"{it.minutes:g} minutes"],
            ["binary predictions", f"{it.rate:.1f} /s of {', '.join(it.models)}: {_counts(it.predictions)}"],
            *([name, _counts(counts)] for name, counts in it.others.items()),
            ["wrong answers", f"**{it.wrong}**"],
            ["5xx, but for planned ones", f"**{it.unplanned_5xx}**"],
            ["other answers than the right ones, in all", f"**{it.problems}**"],
            ["restarts of a process", f"**{it.restarts}**"],
            *([f"RSS, {name}", _growth_text(it, name)] for name in it.rss_mib),
            ["CPUs busy with other work", f"{it.other_cpus:.2f}"],
        ]
    return table(["", "measured"], rows) if rows else ""


def _growth_text(soak: Soak, process: str) -> str:
    values, (slope, low, high) = soak.rss_mib[process], soak.mib_per_min[process]
    return f"{values[0]:.0f} to {values[-1]:.0f} MiB; second half **{slope:+.3f}** MiB/min ({low:+.3f} to {high:+.3f})"


def failures(results: Results) -> str:
    rows = [[it.model, it.title, _one_line(it.error)] for it in results.failed]
    rows += [["", it.part, _one_line(it.error)] for it in results.of(Failure)]
    return table(["model", "who", "why"], rows) if rows else ""


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {TIMES} {status}" for status, count in counts.items())


def _one_line(text: str) -> str:
    return " ".join(text.replace("|", "/").split())[:_ERROR_LENGTH]


def titles(models: Sequence[str]) -> dict[str, str]:
    return {served.name: served.row.title for served in SERVED if served.name in models}
