"""Tests that names from untrusted sources cannot control the terminal in any kind of output."""

from __future__ import annotations

import json
import logging

import pytest
from rich.text import Text

from service.cli.output import Output
from service.cli.tables import Table, whole
from service.core.errors import InvalidInput
from service.core.system.logs import LogFormat, _JsonFormatter, _TextFormatter

NAME = "conv\x1b[2J\x1b]0;owned\x07\x9b31m\u202e"
SHOWN = "conv\\x1b[2J\\x1b]0;owned\\x07\\x9b31m\\u202e"


def table(*cells: str | Text) -> Table:
    made = Table(*(whole() for _ in cells))
    made.add(*cells)
    return made


def test_text_and_tables(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=False)
    output.show(Text(NAME), table(Text(NAME), "second"), f"[bold]{NAME.replace('[', chr(92) + '[')}[/bold]")
    output.text(f"{NAME}\n")
    written = capsys.readouterr().out
    assert written.count("\\x1b]0;owned") == written.count("\\x9b31m\\u202e") == 4
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(written)


@pytest.mark.parametrize("cell", ["a\n✓ verified", Text("a\n✓ verified")])
def test_a_line_break_in_a_name_starts_no_row(cell: str | Text, capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=False).show(table(cell, "second"))
    assert capsys.readouterr().out == "a\\n✓ verified  second\n"


def test_errors(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=False).error(InvalidInput("bad", tensor=f"{NAME}\nforged"))
    assert f"tensor: {SHOWN}\\nforged" in capsys.readouterr().err


def test_documents_survive_a_round_trip(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"name": NAME + "\U000e0041 größe"}
    Output(as_json=True).document(value)
    written = capsys.readouterr().out
    assert json.loads(written) == value
    assert "größe" in written
    assert not {"\x9b", "\u202e", "\U000e0041"} & set(written)


@pytest.mark.parametrize("form", list(LogFormat))
def test_a_name_cannot_forge_a_line_of_the_log(form: LogFormat) -> None:
    record = logging.LogRecord("name", logging.ERROR, "", 0, "%s failed", (f"{NAME}\nforged",), None)
    formatter = _JsonFormatter() if form is LogFormat.JSON else _TextFormatter("%(levelname)s %(message)s")
    line = formatter.format(record)
    assert not {"\n", "\x1b", "\x9b", "\u202e"} & set(line)


def test_styles_are_kept() -> None:
    from service.cli.output import _SafeConsole

    console = _SafeConsole(force_terminal=True, color_system="standard", width=80)
    with console.capture() as captured:
        console.print(Text("\x1b[2J", style="bold red"))
    assert captured.get() == "\x1b[1;31m\\x1b[2J\x1b[0m\n"
