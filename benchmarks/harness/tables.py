"""Markdown: tables, the sections of this folder's pages that programs write, and the headings of a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.harness.home import CHECKOUT
from benchmarks.harness.kept import day_of, keep_rows

TIMES = "\N{MULTIPLICATION SIGN}"
PAGES = CHECKOUT / "benchmarks"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(map(_line, [columns, ["---"] * len(columns), *rows]))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table while its rows are measured, each row as soon as it is known."""
    print(table(columns, []), flush=True)
    for row in rows:
        print(_line(row), flush=True)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def milliseconds(value: float) -> str:
    """Formats a value with three significant digits or more."""
    return f"{value:.4f}" if value < 0.1 else f"{value:.3f}" if value < 1 else f"{value:.2f}"


def write_section(page: str, name: str, text: str) -> None:
    """Replaces a section of a page of this folder. Rows of tables that only the previous text has are kept."""
    path = PAGES / page
    document = path.read_text()
    before = section(document, name)
    path.write_text(replace_section(document, name, keep_rows(before, text, day_of(before, path))))


def section(document: str, name: str) -> str:
    """Returns the text between the two markers of a section, or "" if the document lacks them."""
    found = re.search(rf"<!-- {name}: (.* )?from here -->", document)
    return document[found.end() :].partition(f"<!-- {name}: to here -->")[0].strip() if found else ""


def replace_section(document: str, name: str, text: str) -> str:
    """Returns `document` with the text between two markers replaced, or with the section appended if it has none.

    The markers are `<!-- NAME: … from here -->` and `<!-- NAME: to here -->`.
    """
    found = re.search(rf"<!-- {name}: (.* )?from here -->", document)
    begin, end = found[0] if found else f"<!-- {name}: from here -->", f"<!-- {name}: to here -->"
    before, _, rest = document.partition(begin)
    after = rest.partition(end)[2] if found else "\n"
    return f"{before.rstrip()}\n\n{begin}\n\n{text.strip()}\n\n{end}{after}"


def heading(facts: str, versions: Mapping[str, str], method: str, note: str) -> str:
    """Returns the paragraphs that introduce a run's results."""
    described = ", ".join(f"{name} {version}" for name, version in versions.items())
    return "\n\n".join([f"{facts}; {described}.", method, *([f"**{note}**"] if note else [])])


def join_sections(title: str, intro: Sequence[str], sections: Mapping[str, str]) -> str:
    """Joins sections by heading; those without a text are left out."""
    parts = [f"### {heading}\n\n{text}" for heading, text in sections.items() if text]
    return "\n\n".join([f"## {title}", *intro, *parts])
