"""Markdown: tables, the sections of this folder's pages that programs write, and the headings of a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.harness.home import CHECKOUT
from benchmarks.harness.kept import day_of, keep_rows

TIMES = "\N{MULTIPLICATION SIGN}"
PAGES = CHECKOUT / "benchmarks"
_MACHINE = ", on "  # between the name of a section and its machine


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(map(_line, [columns, ["---"] * len(columns), *rows]))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Prints a table while its rows are measured, each row as soon as it is known. Returns the table."""
    print(table(columns, []), flush=True)
    printed: list[Sequence[str]] = []
    for row in rows:
        print(_line(row), flush=True)
        printed.append(row)
    return table(columns, printed)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def milliseconds(value: float) -> str:
    """Formats a value with three significant digits or more."""
    return f"{value:.4f}" if value < 0.1 else f"{value:.3f}" if value < 1 else f"{value:.2f}"


def write_section(page: str, name: str, text: str, machine: str = "") -> None:
    """Replaces a section of a page of this folder. Rows of tables that only the previous text has are kept.

    Args:
        machine: the machine of the figures. Each machine has a section of its own.
    """
    path = PAGES / page
    document = path.read_text()
    whole = _name_of(name, machine)
    before = section(document, whole)
    path.write_text(replace_section(document, whole, keep_rows(before, text, day_of(before, path))))


def section(document: str, name: str) -> str:
    """Returns the text between the two markers of a section, or "" if the document lacks them."""
    found = _begin_of(name).search(document)
    return document[found.end() :].partition(f"<!-- {name}: to here -->")[0].strip() if found else ""


def sections_of_machines(document: str, name: str) -> list[str]:
    """Returns the texts of a section for all machines, in the order of the document."""
    names = re.findall(rf"<!-- ({re.escape(name)}(?:{_MACHINE}[^:]*)?): to here -->", document)
    return [section(document, each) for each in names]


def replace_section(document: str, name: str, text: str) -> str:
    """Returns `document` with the text between two markers replaced. A section that the document lacks is added after
    that of another machine, or at the end.

    The markers are `<!-- NAME: … from here -->` and `<!-- NAME: to here -->`.
    """
    found = _begin_of(name).search(document)
    begin, end = found[0] if found else f"<!-- {name}: from here -->", f"<!-- {name}: to here -->"
    if found:
        before, _, rest = document.partition(begin)
        after = rest.partition(end)[2]
    else:
        others = list(re.finditer(rf"<!-- {re.escape(name.partition(_MACHINE)[0])}[^:]*: to here -->", document))
        at = others[-1].end() if others else len(document)
        before, after = document[:at], document[at:] if others else "\n"
    return f"{before.rstrip()}\n\n{begin}\n\n{text.strip()}\n\n{end}{after}"


def plot_of(part: str, machine: str) -> str:
    """Returns the name of the file with the plot of a part of the benchmarks on a machine."""
    return f"{part}-{re.sub('[^a-z0-9]+', '-', machine.lower()).strip('-')}.png"


def _name_of(name: str, machine: str) -> str:
    return f"{name}{_MACHINE}{machine.replace(':', '')}" if machine else name


def _begin_of(name: str) -> re.Pattern[str]:
    return re.compile(rf"<!-- {re.escape(name)}: (.* )?from here -->")


def heading(facts: str, versions: Mapping[str, str], method: str, note: str) -> str:
    """Returns the paragraphs that introduce a run's results."""
    described = ", ".join(f"{name} {version}" for name, version in versions.items())
    return "\n\n".join([f"{facts}; {described}.", method, *([f"**{note}**"] if note else [])])


def join_sections(title: str, intro: Sequence[str], sections: Mapping[str, str]) -> str:
    """Joins sections by heading; those without a text are left out."""
    parts = [f"### {heading}\n\n{text}" for heading, text in sections.items() if text]
    return "\n\n".join([f"## {title}", *intro, *parts])
