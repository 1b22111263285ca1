"""Writes QUANTIZATION.md from all stored results."""

from __future__ import annotations

import re
from collections.abc import Sequence

from benchmarks.harness.tables import table
from benchmarks.quantization.judging import Counted
from benchmarks.quantization.making import DEFAULT
from benchmarks.quantization.records import Record, Row

# The defaults of each tool.
_DEFAULTS = ("ONNX Runtime, MinMax", "NNCF, performance", "torchao, PT2E", "AI Edge Quantizer")
_BEGINNING = re.compile(r"^(?=## )", re.MULTILINE)
_PLUS = "\N{PLUS-MINUS SIGN}"
_SUMMARY = "## Defaults side by side"


def page(records: Sequence[Record], parts: Sequence[str], before: str = "") -> str:
    """Returns the document.

    Args:
        parts: sections with the results of other measurements, such as speed.
        before: the existing document. Its sections stay if no stored result replaces them.
    """
    taken = [record for record in records if not record.refused]
    sections = [_HEAD, _summary(taken, _older(records, before)), *parts, *map(_section, taken)]
    refused = [record for record in records if record.refused]
    if refused:
        rows = [[record.title, record.what, record.refused] for record in refused]
        sections.append(f"## Networks that Octet does not take\n\n{table(['network', 'what it is', 'why'], rows)}")
    written = {_title(section) for section in sections}
    sections += [each for each in _BEGINNING.split(before)[1:] if _title(each) not in written]
    return "\n\n".join(section.strip("\n") for section in sections if section) + "\n"


def _title(section: str) -> str:
    return section.partition("\n")[0]


def _older(records: Sequence[Record], before: str) -> list[list[str]]:
    """Returns the rows of the existing summary that belong to networks without stored results."""
    summary = next((each for each in _BEGINNING.split(before) if _title(each) == _SUMMARY), "")
    lines = [line for line in summary.splitlines() if line.startswith("| ")][2:]  # after the column titles
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    measured = {record.title for record in records}
    return [row for row in rows if row[0] not in measured]


def _summary(records: Sequence[Record], older: Sequence[list[str]]) -> str:
    """Returns a table that compares Octet's default method with the best default method of the other tools."""
    rows = []
    for record in records:
        by_name = {row.name: row for row in record.rows}
        own, others = by_name[DEFAULT], [by_name[name] for name in _DEFAULTS if not by_name[name].failed]
        best = max(others, key=lambda row: (_counted(row).share, row.noise_db))
        more, error = _counted(own).more(_counted(best))
        share = _share(by_name["float"].judged)
        ahead = f"{100 * more:+.1f} {_PLUS} {100 * error:.1f}"
        cells = [_share(_counted(own)), f"{own.noise_db:.1f} dB", best.name, _share(_counted(best))]
        rows.append([record.title, record.scored if own.judged else record.agreed, share, *cells, ahead])
    columns = ["network", "counted", "float", DEFAULT, "its noise", "best other", "it has", "Octet has more, points"]
    return f"""{_SUMMARY}

Each tool runs with its defaults; the best of the others is the one with the largest share. The last column is the
difference on the same inputs, with the standard error of that difference: less than two of them are not significant. A
row is as old as its network's section, and shows Octet's default at that time.

{table(columns, [*rows, *older])}"""


def _counted(row: Row) -> Counted:
    counted = row.judged or row.agreed
    assert counted
    return counted


def _section(record: Record) -> str:
    own = next(row for row in record.rows if row.name == "float")
    columns = [
        "quantized by",
        record.scored,
        "more than float, points",
        record.agreed,
        "noise of the output",
        "s",
        "bytes",
    ]
    if own.judged is None:
        del columns[1:3]
    rows = []
    for row in record.rows:
        if row.failed:
            rows.append([row.name, row.failed, *[""] * (len(columns) - 2)])
            continue
        cells = [_share(row.agreed), f"{row.noise_db:.1f} dB", f"{row.seconds:.0f}"] if row is not own else [""] * 3
        judged = []
        if own.judged and row.judged:
            more, error = row.judged.more(own.judged)
            judged = [_share(row.judged), f"{100 * more:+.1f} {_PLUS} {100 * error:.1f}" if row is not own else ""]
        rows.append([row.name, *judged, *cells, f"{row.size_bytes:,}"])
    where = f"{record.at}, {record.machine}, load average {record.load:.0f}."
    return f"## {record.title}\n\n{record.what}\n\n{where}\n\n{table(columns, rows)}\n\n{record.said}"


def _share(counted: Counted | None) -> str:
    return "" if counted is None else f"{100 * counted.share:.1f} {_PLUS} {100 * counted.error:.1f} %"


_HEAD = f"""# The cost of quantization

Written by `python -m benchmarks.quantization`, which measures all networks, or those with a word in their title
(`--only WORD`), and then writes this page from all stored results. A section without the time of its measurement is
older, was made by an earlier version of this command, and stays until its network is measured again.

Each network is quantized from float32 by

- Octet (`octet quantize`): each method; the default one with `--no-correct-bias` too, some with `--adaround`,
  `--equalize` and `--rounds`; and, of classifiers with labels, `--budget 0.1%`;
- ONNX Runtime 1.31.1: `quantize_static`, QDQ, its three methods, on the model that its `quant_pre_process` writes;
- NNCF 3.4.0: `nncf.quantize` of the ONNX file, both presets, which correct biases;
- torchao 0.18.0: PT2E with `X86InductorQuantizer` and its default configuration, of the same network written with
  PyTorch's operators (2.13.0), whose answers are compared with the ONNX file's first;
- AI Edge Quantizer 0.10.0, Google's successor of the TFLite converter's quantizer: `static_wi8_ai8`, of the float
  TFLite file, if one exists.

All have int8 weights by channel and 8-bit activations, and are calibrated on the same inputs, without labels. ONNX
files then run in ONNX Runtime, TFLite files in LiteRT, and PyTorch's in PyTorch, on the same inputs.

- *{_PLUS}*: the standard error; differences of less than two of them are not significant.
- *more than float*: on the same inputs, with the standard error of the difference.
- *noise of the output*: 10 log10 of the float outputs' squares over the squares of the quantized ones'
  difference from them; of several outputs the noisiest one's.
- *s*: seconds for calibrating and quantizing on a machine with other work, as its load shows; for Octet including the
  compilation of the float network and both passes over the inputs, which all of its methods share."""
