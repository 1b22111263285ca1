"""Merges the tables of a generated page with those of its previous version, so that a run without some of the data,
models or runtimes does not lose the rows that it did not measure.

A row of the previous version that the new one lacks stays in its table. As soon as a table contains such a row, its
last column is `date`: the day on which each row was measured. A line at the end describes each older run by the words
of its own page. To remove a row for good, delete its line from the page before the run.

If the new version of a table has dates of its own, each cell is a measurement of its own: cells that the new version
lacks are kept too, and the row has the days of all its cells.

Imports nothing but the standard library, because boards and GPU machines write pages too.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

DATE = "date"
UNDATED = "unknown"
_UNTIL = " to "  # between the first and the last day of a row

# The titles of columns that identify a row. The first column of a table always does.
_IDENTIFYING = frozenset(
    {
        *("activations", "batch", "body", "client", "clients", "connections", "contestant", "core", "framework"),
        *("instruction", "kept", "kernel", "mode", "model", "network", "numerics", "operator", "product", "protocol"),
        *("quantity", "road", "target", "threads", "tool", "weights"),
    }
)
_DAY = re.compile(r"\b20\d\d-\d\d-\d\d\b")
_CORES = re.compile(r" pinned to cores? [\d, ]+")  # a run on other cores has the same tables
_RUN = re.compile(r"Rows of (\S+): .*")


@dataclass
class Table:
    """A table of a page.

    Attributes:
        heading: the line of the heading above it.
        rows: the cells of each row, without the head.
    """

    heading: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)

    @property
    def place(self) -> tuple[str, str]:
        """Returns the value by which the same table of another version is found."""
        return _CORES.sub("", self.heading), self.columns[0]

    def cells(self, row: Sequence[str]) -> dict[str, str]:
        return dict(zip(self.columns, row, strict=False))

    def lines(self) -> list[str]:
        return [_line(cells) for cells in (self.columns, ["---"] * len(self.columns), *self.rows)]


def today() -> str:
    """Returns the current day, in UTC."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def write_page(path: Path, text: str) -> None:
    """Writes a page that consists of nothing but generated text. Rows that only the previous version has are kept."""
    before = path.read_text() if path.exists() else ""
    path.write_text(keep_rows(before, text, day_of(before, path)))


def day_of(text: str, path: Path) -> str:
    """Returns the first day that `text` mentions outside its tables: the day of its run. If it mentions none, returns
    the day of the last commit that changed the file, or `unknown`.
    """
    for line in text.splitlines():
        if not line.startswith("|") and (found := _DAY.search(line)):
            return found[0]
    command = ["git", "log", "-1", "--format=%cs", "--", path.name]
    try:
        done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return UNDATED
    return done.stdout.strip() or UNDATED


def keep_rows(before: str, after: str, before_day: str, day: str = "") -> str:
    """Returns `after` with the rows that only `before` has.

    Args:
        before, after: two versions of a page, or of a section of one, as Markdown.
        before_day: the day on which the rows of `before` that have no date were measured.
        day: the day on which those of `after` were measured; by default today, or the day that `after` mentions.
    """
    day = day or next((found[0] for line in _text_of(after) if (found := _DAY.search(line))), today())
    blocks = list(_blocks(after.rstrip("\n")))
    tables = {block.place: block for block in blocks if isinstance(block, Table)}
    for old in tables_of(before):
        if old.place in tables:
            _merge(old, tables[old.place], before_day, day)
        elif old.rows:
            _date(old, before_day)
            _add(blocks, old)
    days = {row[-1] for each in blocks if isinstance(each, Table) and DATE in each.columns for row in each.rows}
    for each, described in _runs(before, before_day).items():
        if each in days and each != day:
            blocks += ["", described]
    lines = (line for block in blocks for line in (block.lines() if isinstance(block, Table) else [block]))
    return "\n".join(lines) + after[len(after.rstrip("\n")) :]


def tables_of(document: str) -> list[Table]:
    """Returns the tables of a document in Markdown."""
    return [block for block in _blocks(document) if isinstance(block, Table)]


def _runs(document: str, day: str) -> dict[str, str]:
    """Returns the line that describes each run of which a document has rows, by its day."""
    found = {match[1]: match[0] for line in _text_of(document) if (match := _RUN.fullmatch(line))}
    own = next((line for line in _text_of(document) if day in line and not _RUN.fullmatch(line)), "")
    return {**found, day: f"Rows of {day}: {own}"} if own else found


def _merge(old: Table, new: Table, old_day: str, day: str) -> None:
    """Adds the rows of `old` that `new` lacks, each after the row that it followed in `old`."""
    identifying = _identifying(new) + [title for title in _identifying(old) if title not in new.columns]
    known = {_key(new, row, identifying): index for index, row in enumerate(new.rows)}
    if DATE in new.columns:
        _date(old, old_day)
        _keep_cells(old, new, identifying)
    kept = [row for row in old.rows if _key(old, row, identifying) not in known]
    if not kept:
        return
    _date(new, day)
    _date(old, old_day)
    new.columns[-1:-1] = [title for title in old.columns if title not in new.columns]
    new.rows = [_arranged(new, {**dict(zip(new.columns, row[:-1], strict=False)), DATE: row[-1]}) for row in new.rows]
    index = 0
    for row in old.rows:
        key = _key(old, row, identifying)
        found = next((at for at, each in enumerate(new.rows) if _key(new, each, identifying) == key), None)
        if found is None:
            new.rows.insert(index, _arranged(new, old.cells(row)))
            found = index
        index = found + 1


def _keep_cells(old: Table, new: Table, identifying: Sequence[str]) -> None:
    """Copies the cells of `old` that are empty or missing in the same row of `new`, and adds their days."""
    before = {_key(old, row, identifying): old.cells(row) for row in old.rows}
    rows = [new.cells(row) for row in new.rows]
    for row, cells in zip(new.rows, rows, strict=True):
        earlier = before.get(_key(new, row, identifying), {})
        kept = {title: cell for title, cell in earlier.items() if cell and not cells.get(title)}
        if kept:
            days = sorted({*cells[DATE].split(_UNTIL), *earlier[DATE].split(_UNTIL)})
            cells.update(kept)
            cells[DATE] = _UNTIL.join(dict.fromkeys([days[0], days[-1]]))
    used = {title for cells in rows for title in cells}
    ordered = [title for title in (*old.columns, *new.columns) if title in {*used, *new.columns} - {DATE}]
    new.columns[:] = [*dict.fromkeys(ordered), DATE]
    new.rows = [_arranged(new, cells) for cells in rows]


def _arranged(table: Table, cells: dict[str, str]) -> list[str]:
    return [cells.get(title, "") for title in table.columns]


def _date(table: Table, day: str) -> None:
    """Adds the column `date`, if the table lacks it."""
    if DATE not in table.columns:
        table.columns.append(DATE)
        table.rows = [[*row, day] for row in table.rows]


def _identifying(table: Table) -> list[str]:
    titles = table.columns[:1]
    for title in table.columns[1:]:
        if title not in _IDENTIFYING:
            break
        titles.append(title)
    return titles


def _key(table: Table, row: Sequence[str], identifying: Sequence[str]) -> tuple[str, ...]:
    cells = table.cells(row)
    return tuple(cells.get(title, "").strip("* ") for title in identifying)


def _add(blocks: list[str | Table], table: Table) -> None:
    """Adds a table that the new version lacks: below its heading, or with its heading at the end."""
    heading = next((at for at, block in enumerate(blocks) if block == table.heading), None)
    if heading is None:
        blocks += ["", table.heading, "", table]
        return
    end = next(
        (at for at in range(heading + 1, len(blocks)) if _is_heading(blocks[at])),
        len(blocks),
    )
    while end > heading + 1 and blocks[end - 1] == "":
        end -= 1
    blocks[end:end] = ["", table]


def _is_heading(block: str | Table) -> bool:
    return isinstance(block, str) and block.startswith("#")


def _blocks(document: str) -> Iterator[str | Table]:
    """Yields the tables of a document, and its other lines."""
    heading, table = "", None
    for line in document.split("\n"):
        if not line.startswith("|"):
            if table:
                yield table
            table = None
            heading = line if line.startswith("#") else heading
            yield line
        elif table is None:
            table = Table(heading, _cells(line))
        elif set(line) - set("|-: "):
            table.rows.append(_cells(line))
    if table:
        yield table


def _text_of(document: str) -> Iterator[str]:
    return (line for line in document.splitlines() if not line.startswith("|"))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip()[1:].removesuffix("|").split("|")]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
