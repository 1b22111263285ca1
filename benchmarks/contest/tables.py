"""The tables of a contest's report, as Markdown. A table without rows is empty."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from benchmarks.contest.contestants import CONTESTANTS, PEAK, Contestant
from benchmarks.contest.figures import PEAKS, Figure, Results
from benchmarks.contest.records import Model
from benchmarks.harness.tables import TIMES, milliseconds, table
from benchmarks.models.catalog import ZOO
from benchmarks.peak.instructions import INSTRUCTIONS
from service.core.artifacts.explanation import KINDS

OCTET = [it for it in CONTESTANTS if it.is_octet and not it.is_fp32]
_OWN_FP32 = [it for it in CONTESTANTS if it.is_octet and it.is_fp32]
_PEERS = [it for it in CONTESTANTS if not it.is_octet and not it.is_fp32 and it.name != PEAK]
_FP32 = [it for it in CONTESTANTS if it.is_fp32]
_ASYMMETRIC, _SYMMETRIC = "mobilenet_v2_1.0_224_quant", "mobilenet_v2_symmetric"
_ERROR_LENGTH = 200
_ZOO_OCTET = next(it for it in OCTET if it.file == "onnx")
_ZOO_PEERS = [it for it in _PEERS if it.file == "onnx"]
_MOST_OPERATORS = 3  # number of operators in generated code that a row names


def peaks(results: Results) -> str:
    names = dict.fromkeys(name for model, name, _ in results.entries if model == PEAKS)
    columns = ["instruction", "the core starts in a cycle"]
    for threads in results.threads:
        columns += [f"GMAC/s, {threads} thread{'s' if threads > 1 else ''}", "measured per cycle and core"]
    rows = []
    for name in names:
        about = [it.info for (model, entry, _), it in results.entries.items() if (model, entry) == (PEAKS, name)]
        row = [name, str(about[0]["starts_per_cycle"] or "unknown")]
        for threads in results.threads:
            gmacs, entry = results.peak_gmacs(PEAKS, threads, name), results.entries.get((PEAKS, name, threads))
            if gmacs is None or entry is None:
                row += ["", ""]
            else:
                each = gmacs / entry.info["macs_each"] / threads / entry.info["clock_ghz"]
                row += [f"{gmacs:.1f}", f"{each:.2f}"]
        rows.append(row)
    note = "Cycles are counted by the clock rate that a chain of dependent multiplications runs at."
    return _table(columns, rows, note)


def octet(results: Results, contestant: Contestant, threads: int) -> str:
    """Returns the table of one numerics mode: its share of the peak, and its distance from the fastest peer."""
    columns = ["model", "limit ms", "Octet ms", "fastest", "rounds' medians", "of the peak", "fastest peer", "its ms"]
    columns += ["Octet is faster by", "of its time on 1 thread"]
    rows = []
    for name, model in _of_part(results):
        figure, peer = results.figure(name, contestant.name, threads), results.fastest_peer(name, threads)
        if not figure:
            continue
        percent, times = (of(name, contestant.name, threads) for of in (results.percent_of_peak, results.times_faster))
        alone = results.figure(name, contestant.name, 1)
        row = [model.title, _limit(results, name, threads), f"**{figure.text}**", milliseconds(figure.min_ms)]
        row += [f"{milliseconds(figure.low_ms)} to {milliseconds(figure.high_ms)}", _bold(percent, ".1f", "%")]
        row += [peer[0].title, peer[1].text] if peer else ["", ""]
        row += [_bold(times, ".2f", TIMES), f"{figure.median_ms / alone.median_ms:.2f}" if alone else ""]
        rows.append(row)
    return _table(columns, rows)


def everybody(results: Results, threads: int) -> str:
    took_part = [it for it in (*OCTET, *_PEERS) if _took_part(results, it, [threads])]
    rows = []
    for name, model in _of_part(results):
        peer = results.fastest_peer(name, threads)
        row = [model.title, f"{model.macs / 1e6:.1f}" if model.macs else "", _limit(results, name, threads)]
        for contestant in took_part:
            text = _text(results.figure(name, contestant.name, threads))
            row.append(f"**{text}**" if peer and contestant == peer[0] else text)
        rows.append(row)
    return _table(["model", "MMAC", "limit", *(it.title for it in took_part)], rows, "The fastest peer is in bold.")


def float32(results: Results) -> str:
    """Returns Octet in int8 beside everybody in float32. Octet's fastest int8 mode is compared."""
    took_part = [it for it in (*_FP32, *OCTET) if _took_part(results, it, results.threads)]
    columns = ["model", "threads", *(f"{it.title} ms" for it in took_part)]
    rows = []
    for name, model in _of_part(results):
        for threads in results.threads:
            own = [figure.median_ms for it in OCTET if (figure := results.figure(name, it.name, threads))]
            peer = results.fastest_peer(name, threads, fp32=True)
            if not own or not peer:
                continue
            texts = [_text(results.figure(name, it.name, threads)) for it in took_part]
            rows.append([model.title, str(threads), *texts, _bold(peer[1].median_ms / min(own), ".2f", TIMES)])
    return _table([*columns, "Octet is faster than the fastest by"], rows)


def own_float32(results: Results) -> str:
    """Returns the speed of int8 over float32 by the same compiler, beside the gain of the instructions alone."""
    modes = [it for it in OCTET if _took_part(results, it, results.threads)]
    rows: list[list[str]] = []
    gains: dict[int, list[float]] = {}
    for name, model in _of_part(results):
        for threads in results.threads:
            real = [found for it in _OWN_FP32 if (found := results.figure(name, it.name, threads))]
            quantized = [found for it in modes if (found := results.figure(name, it.name, threads))]
            if not real or not quantized:
                continue
            own, best = (min(each, key=lambda figure: figure.median_ms) for each in (real, quantized))
            gains.setdefault(threads, []).append(own.median_ms / best.median_ms)
            rows.append([model.title, str(threads), own.text, best.text, _bold(gains[threads][-1], ".2f", TIMES)])
    for threads, each in gains.items():
        rows.append(["geometric mean", str(threads), "", "", _bold(statistics.geometric_mean(each), ".2f", TIMES)])
        if limit := _ratio_of_peaks(results, threads):
            rows.append(["the instructions' peaks", str(threads), "", "", f"{limit:.2f} {TIMES}"])
    return _table(["model", "threads", "Octet (float32) ms", "fastest int8 mode ms", "int8 is faster by"], rows)


def _ratio_of_peaks(results: Results, threads: int) -> float | None:
    """Returns int8's peak divided by float32's: the gain of a model that consists of multiply-accumulates only."""
    peaks = {
        kind: [
            gmacs
            for name in (it.name for it in INSTRUCTIONS if it.operand == kind)
            if (gmacs := results.peak_gmacs(PEAKS, threads, name))
        ]
        for kind in ("int8", "float32")
    }
    return max(peaks["int8"]) / max(peaks["float32"]) if all(peaks.values()) else None


def modes(results: Results) -> str:
    """Returns the cost of the fixed-point mode compared with the mode with a float epilogue."""
    first, second = (next(it for it in OCTET if it.numerics == mode) for mode in ("xnnpack", "litert-reference"))
    rows = []
    for name, model in _of_part(results):
        for threads in results.threads:
            fast, exact = (results.figure(name, it.name, threads) for it in (first, second))
            if fast and exact:
                more = f"{100 * (exact.median_ms / fast.median_ms - 1):+.1f} %"
                rows.append([model.title, str(threads), fast.text, exact.text, more])
    return _table(["model", "threads", f"{first.title} ms", f"{second.title} ms", "more"], rows)


def symmetry(results: Results) -> str:
    """Returns the times of the hosted MobileNetV2 unchanged, and with the zero points of its weights in the middle of
    uint8."""
    rows = []
    for contestant in (*OCTET, *_PEERS):
        for threads in results.threads:
            figures = [results.figure(name, contestant.name, threads) for name in (_ASYMMETRIC, _SYMMETRIC)]
            asymmetric, symmetric = figures
            if asymmetric and symmetric:
                ratio = f"{asymmetric.median_ms / symmetric.median_ms:.2f}"
                rows.append([contestant.title, str(threads), asymmetric.text, symmetric.text, ratio])
    note = "MobileNetV2 uint8 per-tensor; symmetric is the same file, its weights' zero points moved to 128."
    return _table(["", "threads", "asymmetric ms", "symmetric ms", "asymmetric / symmetric"], rows, note)


def failures(results: Results, part: str = "") -> str:
    """Returns the failures on the models of one part of the catalog."""
    titles = {it.name: it.title for it in CONTESTANTS}
    lines = []
    for entry in results.failures:
        model = results.models.get(entry.model)
        if (model.part if model else "") != part:
            continue
        reason = (entry.error.strip().splitlines() or [""])[0][:_ERROR_LENGTH]
        lines.append(f"- {titles.get(entry.contestant, entry.contestant)} on {entry.model}: {reason}")
    return "\n".join(dict.fromkeys(lines))


def zoo(results: Results, threads: int) -> str:
    """Returns the table of the zoo's networks: Octet and the peers on one file, and Octet's time by type of code."""
    columns = ["model", "Octet ms", "fastest", "rounds' medians", *(f"{it.title} ms" for it in _ZOO_PEERS)]
    columns += ["Octet is faster by", *KINDS, "the most of the generated, or why it does not take part"]
    rows = []
    for name, model in _of_part(results, ZOO):
        figure = results.figure(name, _ZOO_OCTET.name, threads)
        row = [model.title, f"**{figure.text}**" if figure else "", milliseconds(figure.min_ms) if figure else ""]
        row.append(f"{milliseconds(figure.low_ms)} to {milliseconds(figure.high_ms)}" if figure else "")
        row += [_text(results.figure(name, it.name, threads)) for it in _ZOO_PEERS]
        row.append(_bold(results.times_faster(name, _ZOO_OCTET.name, threads), ".2f", TIMES))
        entry = results.entries.get((name, _ZOO_OCTET.name, threads))
        shares, generated = (entry.info.get(what, {}) if entry else {} for what in ("time", "generated"))
        row += [f"{shares[kind]:.0%}" if kind in shares else "" for kind in KINDS]
        largest = [f"{operator} {share:.0%}" for operator, share in list(generated.items())[:_MOST_OPERATORS]]
        rows.append([*row, ", ".join(largest) if figure else _why_not(results, model, threads)])
    times = [results.times_faster(name, _ZOO_OCTET.name, threads) for name, _ in _of_part(results, ZOO)]
    found = [each for each in times if each]
    note = (
        "Networks of the zoo (`benchmarks.models.zoo.entries`) with random weights, on one file for all. "
        "Generated is the code that TVM makes of what no kernel computes."
    )
    if found:
        note += f" Faster by {statistics.geometric_mean(found):.2f} in the geometric mean, {min(found):.2f} at least."
    return _table(columns, rows, note)


def _why_not(results: Results, model: Model, threads: int) -> str:
    wanted = (model.name, _ZOO_OCTET.name, threads)
    errors = [it.error for it in results.failures if (it.model, it.contestant, it.threads) == wanted]
    reason = (errors[-1].strip().splitlines() or [""])[0] if errors else model.note
    return reason.replace("|", "/")[:_ERROR_LENGTH]


def _of_part(results: Results, part: str = "") -> Iterator[tuple[str, Model]]:
    return ((name, model) for name, model in results.models.items() if model.part == part)


def _took_part(results: Results, contestant: Contestant, threads: Sequence[int]) -> bool:
    return any(results.figure(name, contestant.name, count) for name in results.models for count in threads)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> str:
    return "\n\n".join([table(columns, rows), note] if note else [table(columns, rows)]) if rows else ""


def _limit(results: Results, model: str, threads: int) -> str:
    limit_ms = results.limit_ms(model, threads)
    return milliseconds(limit_ms) if limit_ms else ""


def _text(figure: Figure | None) -> str:
    return figure.text if figure else ""


def _bold(value: float | None, form: str, unit: str) -> str:
    return f"**{value:{form}} {unit}**" if value is not None else ""
