"""Tests that tables fit the terminal, and that nothing that identifies a row is cut."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

import service.cli
from service.cli.tables import Table, digest, facts, number, text, whole

DIGEST = "sha256:" + "0123456789abcdef" * 4
NAME = "mobilenet-v3-large-1.0-224-quantized-uint8:1"
REASON = "the outputs differ from those of the reference runtime in 12 values"


def versions() -> Table:
    table = Table(
        whole("model"),
        whole("state"),
        text("reason"),
        number("size", leave=3),
        digest("source", leave=2),
        whole("note", leave=1),
    )
    table.add(NAME, Text("different", "red"), REASON, "8.9 kB", DIGEST, "")
    table.add("digits:2", "ready", "", "15.9 kB", DIGEST, "")
    return table


def lines_of(table: Table, width: int | None) -> list[str]:
    return [line.plain for line in table.lines(width)]


def test_a_pipe_has_no_width() -> None:
    heading, row, _ = lines_of(versions(), None)
    assert heading.split() == ["model", "state", "reason", "size", "source", "note"]
    assert all(part in row for part in (NAME, REASON, DIGEST, "8.9 kB"))


def test_names_states_and_numbers_are_whole_at_every_width() -> None:
    for width in range(20, 240):
        lines = lines_of(versions(), width)
        assert {NAME, "different", "ready", "digits:2"} <= set(" ".join(lines).split())
        assert "8.9 kB" in " ".join(lines) or "size" in lines[-1].partition("not shown at this width:")[2]
        assert not any("…" in line for line in lines)


def test_lines_fit_the_terminal() -> None:
    for width in range(len(NAME), 240):
        table = [line for line in lines_of(versions(), width) if not line.startswith("not shown")]
        assert max(map(len, table)) <= width


def test_digests_give_way_first() -> None:
    wide = len(NAME) + len(REASON) + len("different") + len("15.9 kB") + len(DIGEST) + len("note") + 5 * 2
    assert DIGEST in lines_of(versions(), wide)[1]
    assert f"{DIGEST[:19]} " in lines_of(versions(), wide - 1)[1] + " "
    assert REASON in lines_of(versions(), wide - 1)[1]


def test_columns_that_are_left_out_are_named() -> None:
    lines = lines_of(versions(), 95)
    assert lines[-1] == "not shown at this width: source"
    assert "8.9 kB" in "".join(lines)
    assert "note" not in lines[0]


def test_words_are_not_broken_while_a_column_can_be_left_out() -> None:
    table = Table(whole("build"), text("target"), whole("numerics", leave=1))
    table.add("c9719a20", "x86-64-v4+vnni", "litert-reference")
    assert lines_of(table, 30)[1] == "c9719a20  x86-64-v4+vnni"


def test_a_row_that_does_not_fit_becomes_a_block() -> None:
    first, second, third, fourth, *_ = lines_of(versions(), 50)
    assert (first, second) == (NAME, "  state   different")
    assert (third, fourth) == (
        "  reason  the outputs differ from those of the",
        "          reference runtime in 12 values",
    )


def test_texts_wrap_between_words() -> None:
    (first, second) = lines_of(facts([("error", "one two three four five six")]), 31)
    assert (first, second) == ("error  one two three four five", "       six")


def test_numbers_are_aligned_to_the_right() -> None:
    table = Table(number("calls"), whole("x"))
    table.add("7", "a")
    assert lines_of(table, None) == ["calls  x", "    7  a"]


def test_every_cell_has_a_column() -> None:
    with pytest.raises(ValueError, match="2 cells for 1 columns"):
        Table(whole("a")).add("1", "2")


def test_a_terminal_determines_the_width() -> None:
    console = Console(force_terminal=True, width=60, color_system=None)
    with console.capture() as captured:
        console.print(versions())
    assert captured.get().splitlines()[0].strip() == NAME


def test_tables_of_all_commands_are_these() -> None:
    folder = Path(service.cli.__file__).parent
    imports = [
        str(path)
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module in ("rich.table", "rich.columns")
    ]
    assert imports == []
