from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.harness import tables
from benchmarks.harness.kept import UNDATED, day_of, keep_rows, today, write_page

_OLD, _NEW = "2026-01-02", "2026-03-04"


def page(day: str, *rows: str, heading: str = "### Speed", head: str = "| model | ms |\n| --- | --- |") -> str:
    return "\n".join([f"{day} 10:00 UTC; a CPU.", "", heading, "", head, *rows, ""])


def rows_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("| ")]


def test_a_row_that_was_not_measured_again_is_kept_with_its_day() -> None:
    merged = keep_rows(page(_OLD, "| a | 1 |", "| b | 2 |"), page(_NEW, "| a | 3 |"), _OLD)
    assert rows_of(merged) == [
        "| model | ms | date |",
        "| --- | --- | --- |",
        f"| a | 3 | {_NEW} |",
        f"| b | 2 | {_OLD} |",
    ]
    assert merged.endswith(f"\nRows of {_OLD}: {_OLD} 10:00 UTC; a CPU.\n")


def test_a_complete_run_writes_its_own_tables() -> None:
    after = page(_NEW, "| a | 3 |", "| b | 4 |")
    assert keep_rows(page(_OLD, "| **a** | 1 |", "| b | 2 |"), after, _OLD) == after


def test_a_kept_row_stays_where_it_was() -> None:
    before = page(_OLD, "| a | 1 |", "| b | 2 |", "| c | 3 |")
    merged = rows_of(keep_rows(before, page(_NEW, "| a | 4 |", "| c | 5 |"), _OLD))
    assert [row.split(" | ")[0] for row in merged[2:]] == ["| a", "| b", "| c"]


def test_a_row_keeps_its_day_through_several_runs_until_it_is_measured() -> None:
    first = keep_rows(page(_OLD, "| a | 1 |", "| b | 2 |"), page(_NEW, "| a | 3 |"), _OLD)
    second = keep_rows(first, page("2026-05-06", "| a | 5 |"), _NEW)
    assert f"| b | 2 | {_OLD} |" in second
    assert f"Rows of {_OLD}: " in second
    third = keep_rows(second, page("2026-05-06", "| a | 5 |", "| b | 6 |"), "2026-05-06")
    assert third == page("2026-05-06", "| a | 5 |", "| b | 6 |")


def test_a_table_that_a_run_lacks_is_kept() -> None:
    before = page(_OLD, "| a | 1 |", heading="### Memory")
    merged = keep_rows(before, page(_NEW, "| a | 3 |"), _OLD)
    assert f"### Memory\n\n| model | ms | date |\n| --- | --- | --- |\n| a | 1 | {_OLD} |" in merged


def test_a_table_without_rows_gets_the_earlier_ones() -> None:
    assert f"| a | 1 | {_OLD} |" in keep_rows(page(_OLD, "| a | 1 |"), page(_NEW), _OLD)


def test_a_row_is_identified_by_all_columns_that_name_something() -> None:
    head = "| model | threads | ms |\n| --- | --- | --- |"
    before = page(_OLD, "| a | 1 | 8 |", "| a | 2 | 4 |", head=head)
    merged = keep_rows(before, page(_NEW, "| a | 2 | 3 |", head=head), _OLD)
    assert rows_of(merged)[2:] == [f"| a | 1 | 8 | {_OLD} |", f"| a | 2 | 3 | {_NEW} |"]


def test_a_kept_row_keeps_the_columns_that_the_run_lacks() -> None:
    before = page(_OLD, "| a | 1 | 9 |", "| b | 2 | 8 |", head="| model | ms | peer ms |\n| --- | --- | --- |")
    merged = keep_rows(before, page(_NEW, "| a | 3 |"), _OLD)
    assert rows_of(merged)[0] == "| model | ms | peer ms | date |"
    assert rows_of(merged)[2:] == [f"| a | 3 |  | {_NEW} |", f"| b | 2 | 8 | {_OLD} |"]


def test_a_table_with_dates_of_its_own_keeps_the_cells_that_a_run_lacks() -> None:
    before = page(_OLD, "| a | 1 |  | 9 |", "| b | 2 | 5 |  |", head="| model | x | y | z |\n| --- | --- | --- | --- |")
    after = page(
        _NEW, f"| a |  | 4 | {_NEW} |", f"| b | 3 | 6 | {_NEW} |", head="| model | x | y | date |\n| --- | --- |"
    )
    assert rows_of(keep_rows(before, after, _OLD)) == [
        "| model | x | y | z | date |",
        "| --- | --- | --- | --- | --- |",
        f"| a | 1 | 4 | 9 | {_OLD} to {_NEW} |",
        f"| b | 3 | 6 |  | {_NEW} |",
    ]


def test_a_kept_cell_keeps_its_day_through_several_runs() -> None:
    head = "| model | x | y | date |\n| --- | --- | --- | --- |"
    first = page(_NEW, f"| a | 1 | 2 | {_OLD} to {_NEW} |", head=head)
    second = page("2026-05-06", "| a | 3 |  | 2026-05-06 |", head=head)
    assert f"| a | 3 | 2 | {_OLD} to 2026-05-06 |" in keep_rows(first, second, _NEW)


def test_a_run_on_other_cores_has_the_same_tables() -> None:
    before = page(_OLD, "| a | 1 |", heading="### Speed, 1 thread pinned to core 0")
    after = page(_NEW, "| a | 3 |", heading="### Speed, 1 thread pinned to core 4")
    assert keep_rows(before, after, _OLD) == after


def test_the_day_of_a_page_is_in_its_text_or_in_the_history(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    assert day_of(f"| {_NEW} |\n\nMeasured on {_OLD}.", path) == _OLD
    assert day_of("no day", path) == UNDATED
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    path.write_text("no day")
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", "-C", tmp_path, "add", "page.md"], check=True)
    subprocess.run(["git", "-C", tmp_path, *identity, "commit", "--quiet", "-m", "page"], check=True)
    assert day_of("no day", path) != UNDATED


def test_a_page_keeps_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    write_page(path, page(_OLD, "| a | 1 |"))
    write_page(path, page(_NEW, "| b | 2 |"))
    assert rows_of(path.read_text())[2:] == [f"| a | 1 | {_OLD} |", f"| b | 2 | {_NEW} |"]


def test_a_section_keeps_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "PAGES", tmp_path)
    path = tmp_path / "RESULTS.md"
    path.write_text(
        f"# Results\n\n<!-- speed: from here -->\n\n{page(_OLD, '| a | 1 |')}\n<!-- speed: to here -->\n\nend\n"
    )
    tables.write_section("RESULTS.md", "speed", page(_NEW, "| b | 2 |"))
    text = path.read_text()
    assert text.startswith("# Results\n\n<!-- speed: from here -->\n")
    assert text.endswith("<!-- speed: to here -->\n\nend\n")
    assert rows_of(text)[2:] == [f"| a | 1 | {_OLD} |", f"| b | 2 | {_NEW} |"]


def test_rows_without_a_day_in_the_text_were_measured_today() -> None:
    before = "| model | ms |\n| --- | --- |\n| a | 1 |\n"
    assert f"| b | 2 | {today()} |" in keep_rows(before, before.replace("| a | 1 |", "| b | 2 |"), UNDATED)
