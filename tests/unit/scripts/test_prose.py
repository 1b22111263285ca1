"""Tests that sentences and names that the style guide excludes are found, but only in changed lines."""

from __future__ import annotations

import pytest

from scripts import prose

_BAD = "What is read of the tables for it."  # prose: ignore


def found(path: str, source: str, lines: set[int] | None = None) -> list[tuple[int, str]]:
    return [(each.line, each.rule) for each in prose.check(path, source, lines)]


@pytest.mark.parametrize(
    ("path", "source", "line"),
    [
        ("a.py", f'"""{_BAD}"""\n', 1),
        ("a.py", f'def f():\n    """{_BAD}"""\n', 2),
        ("a.py", f"x = 1  # {_BAD}\n", 1),
        ("a.py", f"x = 1\n\n# Good.\n# More.\n\n# {_BAD}\n", 6),
        ("a.cc", f"int x;\n// {_BAD}\n", 2),
        ("a.js", f"/**\n * {_BAD}\n */\n", 2),
        ("a.md", f"# Title\n\n{_BAD}\n", 3),
    ],
)
def test_a_headless_clause_is_found_in_each_kind_of_text(path: str, source: str, line: int) -> None:
    assert found(path, source) == [(line, "starts with a clause in place of a noun or a verb")]


@pytest.mark.parametrize(
    "text",
    [
        "where nothing runs",  # prose: ignore
        "It is no tensor.",  # prose: ignore
        "The file says so.",  # prose: ignore
        "waits for nobody",  # prose: ignore
        "a table of the names of the parts of it",  # prose: ignore
        "by what is stored",  # prose: ignore
        "The value stands in the header.",  # prose: ignore
    ],
)
def test_each_rule_finds_its_sentence_in_messages_of_errors(text: str) -> None:
    assert len(found("a.py", f"def f():\n    raise ValueError({text!r})\n")) == 1


@pytest.mark.parametrize(
    "text", ["Returns the shape.", "It is no longer served.", "There is no such model.", "What does a build cost?"]
)
def test_good_sentences_pass(text: str) -> None:
    assert found("a.py", f"# {text}\n") == []


def test_a_function_named_by_a_bare_participle_is_found() -> None:
    assert found("a.py", "def _made() -> None:\n    pass\n") == [(1, "is a name without its object")]


def test_code_and_tables_of_markdown_are_not_read() -> None:
    assert found("a.md", f"```\n{_BAD}\n```\n\n| {_BAD} |\n\n    {_BAD}\n") == []


def test_only_texts_in_changed_lines_count() -> None:
    source = f"# {_BAD}\n\nx = 1\n\n# {_BAD}\n# Its second line.\n"
    assert [line for line, _ in found("a.py", source, {6})] == [5]


def test_the_lines_that_a_diff_changes() -> None:
    first = "--- a/x.py\n+++ b/x.py\n@@ -1 +1,2 @@\n-a\n+b\n+c\n@@ -9,2 +10,0 @@\n-d\n-e\n"
    second = "--- a/y.md\n+++ b/y.md\n@@ -3 +3 @@\n-a\n+b\n"
    assert prose.changed_lines(first + second) == {"x.py": {1, 2}, "y.md": {3}}
