"""Writes the inputs for which a model disagrees with the labels or the reference runtime as one HTML file.

The file contains its pictures, and loads nothing from elsewhere. Names and labels are escaped, because they may come
from the files of others.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from service.core.verification.scoring import Metric

_SHOWN_CLASSES = 3
_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>octet evaluate</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<style>
body { font: 15px/1.4 system-ui, sans-serif; margin: 2rem; color: #222; background: #fff; }
table { border-collapse: collapse; margin: 1rem 0; } td, th { padding: .2rem 1rem .2rem 0; text-align: left; }
.cases { display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); gap: 1rem; }
figure { margin: 0; padding: .6rem; border: 1px solid #ccc; border-radius: 6px; overflow-wrap: anywhere; }
img { display: block; max-width: 100%; height: 10rem; object-fit: contain; margin-bottom: .4rem; }
dl { margin: .3rem 0 0; } dt { color: #666; font-size: .85em; } dd { margin: 0 0 .3rem; }
dd div { white-space: nowrap; overflow: hidden; text-overflow: ellipsis; } dd div + div { color: #666; }
.right div:first-child { color: #17692b; } .wrong div:first-child { color: #a3161b; }
</style></head><body>
"""


@dataclass(frozen=True)
class Picture:
    """An input in the page.

    Attributes:
        jpeg: the input as a picture; None if it is not one.
        label: the name of its label; "" without one.
        classes, reference_classes: the names of the classes with the largest results, the largest first.
        difference: the largest difference from the reference's outputs; None if it is not known.
        score: the number that a user's function returned.
    """

    name: str
    jpeg: bytes | None
    label: str
    classes: Sequence[str]
    reference_classes: Sequence[str]
    difference: float | None
    score: float | None


def write_page(
    path: Path,
    lines: Sequence[str],
    metrics: Mapping[str, Metric],
    reference: str | None,
    reference_metrics: Mapping[str, Metric],
    pictures: Sequence[Picture],
) -> None:
    """Writes the page.

    Args:
        lines: a description of the model and of the data set.
        reference: the name of the reference runtime; None without one.
    """
    parts = [_HEAD, "<h1>octet evaluate</h1>\n", *(f"<p>{escape(line)}</p>\n" for line in lines)]
    parts.append(_table(metrics, reference, reference_metrics))
    parts.append(f"<h2>Disagreements ({len(pictures)} shown)</h2>\n<div class=cases>\n")
    parts += [_figure(picture) for picture in pictures]
    parts.append("</div></body></html>\n")
    path.write_text("".join(parts), encoding="utf-8")


def _table(metrics: Mapping[str, Metric], reference: str | None, theirs: Mapping[str, Metric]) -> str:
    heads = ["", "Octet", *([reference] if reference else [])]
    rows = ["".join(f"<th>{escape(head)}</th>" for head in heads)]
    for name, metric in metrics.items():
        cells = [name, text_of(metric), *([text_of(theirs[name])] if name in theirs else [])]
        rows.append("".join(f"<td>{escape(cell)}</td>" for cell in cells))
    return "<table>" + "".join(f"<tr>{row}</tr>\n" for row in rows) + "</table>\n"


def text_of(metric: Metric) -> str:
    """Returns a score with its interval: `0.810 (0.722 to 0.875, 100 inputs)`."""
    return f"{metric.value:.3f} ({metric.low:.3f} to {metric.high:.3f}, {metric.inputs} inputs)"


def _figure(picture: Picture) -> str:
    rows = [_row("label", [picture.label])] if picture.label else []
    for name, classes in _results(picture):
        rows.append(_row(name, classes, _style(classes[0], picture.label)))
    if picture.difference is not None:
        rows.append(_row("largest difference", [f"{picture.difference:g}"]))
    if picture.score is not None:
        rows.append(_row("score", [f"{picture.score:g}"]))
    image = ""
    if picture.jpeg is not None:
        image = f'<img alt="" src="data:image/jpeg;base64,{base64.b64encode(picture.jpeg).decode()}">'
    return f"<figure>{image}<b>{escape(picture.name)}</b><dl>{''.join(rows)}</dl></figure>\n"


def _results(picture: Picture) -> list[tuple[str, list[str]]]:
    """Returns the first classes of Octet and of the reference; once if they are the same."""
    octet, reference = (list(classes[:_SHOWN_CLASSES]) for classes in (picture.classes, picture.reference_classes))
    if octet and octet == reference:
        return [("Octet and the reference", octet)]
    return [(name, classes) for name, classes in (("Octet", octet), ("the reference", reference)) if classes]


def _style(result: str, label: str) -> str:
    if not label:
        return "plain"
    return "right" if result == label else "wrong"


def _row(name: str, texts: Sequence[str], style: str = "plain") -> str:
    lines = "".join(f'<div title="{escape(text)}">{escape(text)}</div>' for text in texts)
    return f"<dt>{name}</dt><dd class={style}>{lines}</dd>"
