from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.harness import tables
from benchmarks.harness.tables import heading, join_sections, milliseconds, print_table, replace_section


def test_only_the_text_between_the_markers_is_replaced() -> None:
    begin, end = "<!-- contest: written by benchmarks.contest, from here -->", "<!-- contest: to here -->"
    document = f"# Results\n\nby hand\n\n{begin}\n\nold tables\n\n{end}\n\nmore by hand\n"
    assert replace_section(document, "contest", "new tables\n") == document.replace("old", "new")


def test_a_section_without_markers_is_appended() -> None:
    document = replace_section(replace_section("by hand\n", "zoo", "a"), "contest", "b")
    assert document.startswith("by hand\n\n<!-- zoo: from here -->\n\na\n\n<!-- zoo: to here -->\n\n<!-- contest: from")
    assert replace_section(document, "zoo", "c") == document.replace("\na\n", "\nc\n")


def test_each_machine_has_a_section_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "PAGES", tmp_path)
    page = tmp_path / "RESULTS.md"
    page.write_text("# Results\n\n<!-- zoo: from here -->\n\nz\n\n<!-- zoo: to here -->\n")
    for machine, text in (("A (1)", "a"), ("B", "b"), ("A (1)", "c")):
        tables.write_section("RESULTS.md", "contest", text, machine)
    tables.write_section("RESULTS.md", "zoo", "y", "B")
    assert tables.sections_of_machines(page.read_text(), "contest") == ["c", "b"]
    assert tables.sections_of_machines(page.read_text(), "zoo") == ["z", "y"]
    order = re.findall("<!-- (.*): to here", page.read_text())
    assert order == ["zoo", "zoo, on B", "contest, on A (1)", "contest, on B"]


def test_a_plot_is_named_after_its_machine() -> None:
    assert tables.plot_of("contest", "AMD EPYC (family 26), x86-64-v4+vnni") == (
        "contest-amd-epyc-family-26-x86-64-v4-vnni.png"
    )


def test_rows_are_printed_as_they_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    text = print_table(["a", "b"], (["1", capsys.readouterr().out.strip()] for _ in range(1)))
    assert text == "| a | b |\n| --- | --- |\n| 1 | | a | b |\n| --- | --- | |"
    assert capsys.readouterr().out == "| 1 | | a | b |\n| --- | --- | |\n"


@pytest.mark.parametrize(
    ("value", "text"), [(0.02234, "0.0223"), (0.2345, "0.234"), (8.564, "8.56"), (123.4, "123.40")]
)
def test_milliseconds_keep_three_digits(value: float, text: str) -> None:
    assert milliseconds(value) == text


def test_a_heading_ends_with_the_note() -> None:
    assert heading("now; a CPU", {"octet": "1"}, "Method.", "busy") == "now; a CPU; octet 1.\n\nMethod.\n\n**busy**"


def test_sections_without_a_text_are_left_out() -> None:
    assert join_sections("Run", ["intro"], {"a": "1", "b": ""}) == "## Run\n\nintro\n\n### a\n\n1"
