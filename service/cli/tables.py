"""Tables that fit the terminal. Nothing that identifies a row is cut, and no number or state is.

Columns give way in this order, until the table fits:

1. Digests are shortened, first to 12 and then to 8 digits: every command accepts such a prefix, or shows the whole.
2. Texts are wrapped, to at least `_COMFORTABLE` characters.
3. Whole columns are left out, in the order that they have. A line below the table names them.
4. Texts are wrapped further, to at least `_NARROWEST` characters.
5. Each row becomes a block with one line for each cell.

Files and pipes have no width: they get all columns, and digests in full. Every table of the command is one of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from service.core.printable import printable

_GAP = 2  # spaces between columns
_COMFORTABLE, _NARROWEST = 24, 12
_DIGITS = (12, 8)
_ALGORITHM = "sha256:"

Cell = str | Text


class _Role(Enum):
    WHOLE = "whole"  # names, states and short facts
    NUMBER = "number"
    TEXT = "text"
    DIGEST = "digest"


@dataclass(frozen=True)
class Column:
    """A column of a table. `whole`, `number`, `text` and `digest` create one.

    Attributes:
        leave: the order in which columns are left out, 1 first; 0 for a column that is never left out.
    """

    heading: str
    role: _Role
    leave: int = 0


def whole(heading: str = "", leave: int = 0) -> Column:
    """Returns a column of names, states or other short cells, which are not wrapped."""
    return Column(heading, _Role.WHOLE, leave)


def number(heading: str = "", leave: int = 0) -> Column:
    """Returns a column of numbers with their units, aligned to the right."""
    return Column(heading, _Role.NUMBER, leave)


def text(heading: str = "", leave: int = 0) -> Column:
    """Returns a column of texts that may be wrapped."""
    return Column(heading, _Role.TEXT, leave)


def digest(heading: str, leave: int = 0) -> Column:
    """Returns a column of digests, `sha256:<64 hex digits>`."""
    return Column(heading, _Role.DIGEST, leave)


class Table:
    """A table of text, which rich prints."""

    def __init__(self, *columns: Column, title: str = "") -> None:
        self._columns = columns
        self._title = title
        self._rows: list[tuple[list[Text], str]] = []

    @property
    def row_count(self) -> int:
        return len(self._rows)

    def add(self, *cells: Cell, style: str = "") -> None:
        """Adds a row. A line break in a cell is escaped: a name with a line break would look like a row of its own.

        Raises:
            ValueError: the number of cells is not that of the columns.
        """
        if len(cells) != len(self._columns):
            raise ValueError(f"{len(cells)} cells for {len(self._columns)} columns")
        self._rows.append(([_on_one_line(cell) for cell in cells], style))

    def lines(self, width: int | None) -> Iterator[Text]:
        """Yields the table's lines.

        Args:
            width: the largest number of characters in a line; None for no limit.
        """
        if self._title:
            yield Text(self._title, style="italic")
        layout = self._fitting(width)
        if layout is None:
            yield from self._blocks(width)
            return
        columns, widths, rows = layout
        if any(self._columns[index].heading for index in columns):
            headings = [Text(self._columns[index].heading) for index in columns]
            yield from self._row(columns, widths, headings, "dim")
        for cells, style in rows:
            yield from self._row(columns, widths, [cells[index] for index in columns], style)
        left_out = [each.heading for index, each in enumerate(self._columns) if index not in columns and each.heading]
        if hidden := [heading for heading in left_out if self._has_content(heading)]:
            yield Text(f"not shown at this width: {', '.join(hidden)}", style="dim")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.lines(options.max_width if console.is_terminal else None):
            line.no_wrap, line.overflow = True, "ignore"
            yield line

    def _fitting(self, width: int | None) -> tuple[list[int], list[int], list[tuple[list[Text], str]]] | None:
        """Returns the columns to show, their widths, and the rows; None if no layout in columns fits."""
        columns, rows = list(range(len(self._columns))), self._rows
        if width is None:
            return columns, [self._natural(index, rows) for index in columns], rows
        shortened = [rows, *(self._with_digests(digits) for digits in _DIGITS)]
        for rows in shortened:
            natural = [self._natural(index, rows) for index in columns]
            if _total(natural) <= width:
                return columns, natural, rows
        leaving = sorted((index for index in columns if self._columns[index].leave), key=self._order)
        for least in (_COMFORTABLE, _NARROWEST):
            for count in range(len(leaving) + 1):
                if least == _NARROWEST and count < len(leaving):
                    continue  # wrapping further is for when nothing more can be left out
                columns = [index for index in range(len(self._columns)) if index not in leaving[:count]]
                if (widths := self._wrapped(columns, rows, width, least)) is not None:
                    return columns, widths, rows
        return None

    def _order(self, index: int) -> tuple[bool, int]:
        """Columns without any content are left out first."""
        return any(cells[index] for cells, _ in self._rows), self._columns[index].leave

    def _has_content(self, heading: str) -> bool:
        (index,) = (index for index, each in enumerate(self._columns) if each.heading == heading)
        return any(cells[index] for cells, _ in self._rows)

    def _natural(self, index: int, rows: Sequence[tuple[list[Text], str]]) -> int:
        cells = [cells[index].cell_len for cells, _ in rows]
        return max([cell_len(self._columns[index].heading), *cells])

    def _with_digests(self, digits: int) -> list[tuple[list[Text], str]]:
        return [
            (
                [
                    _shortened(cell, digits) if column.role is _Role.DIGEST else cell
                    for column, cell in zip(self._columns, cells, strict=True)
                ],
                style,
            )
            for cells, style in self._rows
        ]

    def _wrapped(
        self, columns: Sequence[int], rows: Sequence[tuple[list[Text], str]], width: int, least: int
    ) -> list[int] | None:
        """Returns the widths of `columns` if wrapping texts to at least `least` characters makes them fit. No word of
        up to `_COMFORTABLE` characters is broken.
        """
        widths = {index: self._natural(index, rows) for index in columns}
        least_of = {
            index: max(least, min(_COMFORTABLE, max(_longest_word(cells[index]) for cells, _ in rows)))
            for index in columns
            if self._columns[index].role is _Role.TEXT and rows
        }
        for _ in range(_total(list(widths.values())) - width):
            widest = max(least_of, key=lambda index: widths[index] - least_of[index], default=None)
            if widest is None or widths[widest] <= least_of[widest]:
                return None
            widths[widest] -= 1
        return [widths[index] for index in columns]

    def _row(self, columns: Sequence[int], widths: Sequence[int], cells: Sequence[Text], style: str) -> Iterator[Text]:
        """Yields the lines of a row; several if a text is wrapped."""
        parts = [_wrap(cell, width) for cell, width in zip(cells, widths, strict=True)]
        for number in range(max(map(len, parts))):
            line = Text(style=style)
            for position, (index, width) in enumerate(zip(columns, widths, strict=True)):
                part = parts[position][number] if number < len(parts[position]) else Text()
                padding = " " * (width - part.cell_len)
                is_number = self._columns[index].role is _Role.NUMBER
                line.append_text(Text.assemble(padding, part) if is_number else Text.assemble(part, padding))
                line.append(" " * _GAP)
            line.rstrip()
            yield line

    def _blocks(self, width: int | None) -> Iterator[Text]:
        """Yields each row as a block: its first cell, and a line for each of the others. Texts are wrapped."""
        label = max(cell_len(column.heading) for column in self._columns)
        room = max(_NARROWEST, (width or 0) - label - 2 * _GAP)
        for cells, style in self._with_digests(_DIGITS[-1]):
            shown = [(column, cell) for column, cell in zip(self._columns, cells, strict=True) if cell]
            for number, (column, cell) in enumerate(shown):
                if number == 0:
                    yield Text.assemble(cell, style=style)
                    continue
                parts = _wrap(cell, room) if column.role is _Role.TEXT else [cell]
                for line, part in enumerate(parts):
                    heading = "" if line else column.heading
                    padding = " " * (label - cell_len(heading) + _GAP)
                    yield Text.assemble(" " * _GAP, (heading, "dim"), padding, part, style=style)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _longest_word(cell: Text) -> int:
    return max(map(cell_len, cell.plain.split()), default=0)


def _on_one_line(cell: Cell) -> Text:
    if isinstance(cell, str):
        return Text(printable(cell) if "\n" in cell else cell)
    return Text("\\n").join(cell.split("\n", allow_blank=True)) if "\n" in cell.plain else cell


def _shortened(cell: Text, digits: int) -> Text:
    plain = cell.plain
    return cell[: len(_ALGORITHM) + digits] if plain.startswith(_ALGORITHM) else cell


def _wrap(cell: Text, width: int) -> list[Text]:
    """Breaks a cell into lines between words, and within a word that is longer than a line."""
    if cell.cell_len <= width:
        return [cell]
    parts = list(cell.wrap(Console(width=width), width, overflow="fold"))
    for part in parts:
        part.rstrip()
    return parts


def facts(rows: Iterable[tuple[str, Cell]]) -> Table:
    """Returns a table of labels and their texts, without headings."""
    table = Table(whole(), text())
    for label, value in rows:
        table.add(Text(label, style="dim"), value)
    return table
