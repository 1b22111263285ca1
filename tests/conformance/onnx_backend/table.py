"""Writes the results of ONNX's backend tests as a section of docs/reference/conformance.md."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.conformance.onnx_backend.outcomes import AS_REFERENCE, CLOSE, EQUAL, PASSES

HEADING = "## ONNX's backend tests"
_GRAPHS = "(several operators)"
_MOST_REASONS, _MOST_SHAPES, _LONGEST_REASON = 3, 6, 90


def section(results: Mapping[str, Mapping[str, Any]], day: str) -> str:
    """Returns the section as Markdown.

    Args:
        results: name of a case -> its entry in `docs/reference/onnx_backend.json`.
    """
    entries = list(results.values())
    passed = [each for each in entries if each["outcome"] in PASSES]
    shared = [each for each in entries if each["reference"]]
    shared_passed = [each for each in shared if each["outcome"] in PASSES]
    grouped: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for each in entries:
        grouped[each["operator"] or _GRAPHS].append(each)
    columns = ("operator", "cases", "equal", "within tolerance", "types", "shapes", "why not", "date")
    lines = [
        HEADING,
        "Written by `python -m tests.conformance.onnx_backend FOLDER --write`, from the cases of the package `onnx` "
        "that `tests/conformance/onnx_backend/collect.py` wrote to FOLDER. Each case is imported and compiled for "
        "x86-64; its results equal the oracle's bit for bit, and are compared with the suite's expected outputs. "
        "Parameters that the suite passes as inputs (axes, sizes, weights) are constants where a build needs that.",
        "",
        f"{len(passed)} of {len(entries)} cases pass; of the {len(shared)} cases that ONNX Runtime's CPU provider "
        f"runs, {len(shared_passed)} ({100 * len(shared_passed) / max(1, len(shared)):.1f} %).",
        "",
        f"| {' | '.join(columns)} |",
        f"| {' | '.join(['---'] * len(columns))} |",
    ]
    for operator in sorted(grouped, key=lambda name: (name == _GRAPHS, name)):
        lines.append(f"| {' | '.join([operator, *_cells(grouped[operator]), day])} |")
    return "\n".join(lines) + "\n"


def _cells(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    outcomes = Counter(each["outcome"] for each in entries)
    tensors = [each["tensors"] for each in entries if each["outcome"] in PASSES]
    types = sorted({tensor.partition("[")[0] for case in tensors for tensor in case})
    shapes = list(dict.fromkeys(f"[{case[0].partition('[')[2]}" for case in tensors if case))
    shown = " ".join(shapes[:_MOST_SHAPES]) + (" …" if len(shapes) > _MOST_SHAPES else "")
    return [
        str(len(entries)),
        str(outcomes[EQUAL]),
        str(outcomes[CLOSE] + outcomes[AS_REFERENCE]),
        ", ".join(types),
        shown,
        _reasons(entries),
    ]


def _reasons(entries: Iterable[Mapping[str, Any]]) -> str:
    found = Counter(_general(each) for each in entries if each["outcome"] not in PASSES)
    shown = [f"{text} ({count})" for text, count in found.most_common(_MOST_REASONS)]
    rest = sum(found.values()) - sum(count for _, count in found.most_common(_MOST_REASONS))
    return "; ".join([*shown, *([f"other reasons ({rest})"] if rest else [])])


def _general(entry: Mapping[str, Any]) -> str:
    """Returns the reason without names and numbers, so that equal reasons are counted together."""
    text = str(entry["text"])
    missing = re.match(r"\d+ of \d+ operators? [^:]*: ([^;→(]*?)(?: \(\d+ times\))?(?:[;,.] |$)", text)
    if missing:
        return f"{missing[1].strip().rstrip('.')} is not compiled"[:_LONGEST_REASON]
    text = re.sub(r" #\d+", "", text.replace("|", "/"))
    return re.sub(r"^the (input|output) \S+", r"an \1", re.sub(r"\[[^\]]*\]", "[…]", text))[:_LONGEST_REASON]


def replaced(page: str, text: str) -> str:
    """Returns the page with the section replaced, or added at the end."""
    before, found, rest = page.partition(HEADING)
    after = rest[rest.index("\n## ") + 1 :] if found and "\n## " in rest else ""
    return f"{before.rstrip()}\n\n{text}" + (f"\n{after}" if after else "")
