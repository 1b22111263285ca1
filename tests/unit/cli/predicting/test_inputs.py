"""Tests of the inputs of `octet predict`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from service.cli.predicting.formats import Format
from service.cli.predicting.inputs import Item, count_of, items_of
from service.core.errors import InvalidInput


def unreachable(url: str) -> bytes:
    raise AssertionError(url)


def read(*given: str, stdin: str = "", format: Format | None = None) -> list[Item]:
    return list(items_of(given, format, io.StringIO(stdin), unreachable))


def data(items: list[Item]) -> list[Any]:
    return [item.file or item.text or item.values or (list(item.row.cells) if item.row else None) for item in items]


def test_an_argument_is_a_file_a_folder_or_a_text(tmp_path: Path) -> None:
    for name in ("a.png", "b/c.JPG", "b/d.npy", "b/notes.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = read(str(tmp_path / "a.png"), str(tmp_path / "b"), "a text", "x" * 5000)
    assert data(found) == [tmp_path / "a.png", tmp_path / "b/c.JPG", tmp_path / "b/d.npy", "a text", "x" * 5000]
    assert len(found[-1].name) == 40


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no pictures"):
        read(str(tmp_path))


def test_a_missing_file_is_not_taken_for_a_text() -> None:
    with pytest.raises(InvalidInput, match=r"cat\.jpg does not exist"):
        read("cat.jpg")
    assert data(read("Look at cat.jpg")) == ["Look at cat.jpg"]


@pytest.mark.parametrize(
    ("stdin", "format", "expected"),
    [
        ("one\r\n\ntwo", None, ["one", "two"]),
        ('{"text": "a"}\n"b"\n\n[1, 2]\n{"x": [3]}\n', None, ["a", "b", [1, 2], {"x": [3]}]),
        ("[not json]", Format.LINES, ["[not json]"]),
        ('id,text\n1,"a, b"\n2,c\n', Format.CSV, ["a, b", "c"]),
        ("sentence\nhello\n", Format.CSV, ["hello"]),
        ("x,y\n1,2.5\n\n", Format.CSV, [["1", "2.5"]]),
        ("1,2.5\n", Format.CSV, [["1", "2.5"]]),
        ("", None, []),
    ],
)
def test_lines_are_read_by_their_format(stdin: str, format: Format | None, expected: list[Any]) -> None:
    assert data(read("-", stdin=stdin, format=format)) == expected


@pytest.mark.parametrize(("name", "expected"), [("a.txt", "[1]"), ("a.jsonl", [1]), ("a.csv", None)])
def test_the_name_of_a_file_defines_its_format(tmp_path: Path, name: str, expected: Any) -> None:
    (tmp_path / name).write_text("\ufeff[1]\n")
    found = read(str(tmp_path / name))
    assert data(found) == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("stdin", "format"),
    [("{", None), ("[" * 100_000, None), ('a\n"' + "x" * 200_000, Format.CSV)],
)
def test_malformed_lines_are_refused_with_their_number(stdin: str, format: Format | None) -> None:
    with pytest.raises(InvalidInput, match=r"line \d"):
        read("-", stdin=stdin, format=format)


def test_bytes_that_are_not_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="not UTF-8"):
        read(str(tmp_path / "a.txt"))


@pytest.mark.parametrize(
    ("stdin", "format"),
    [
        ('{"text": "a", "text_pair": "b"}\n', Format.JSONL),
        ("text_pair,id,text\nb,1,a\n", Format.CSV),
    ],
)
def test_a_line_may_be_a_pair_of_texts(stdin: str, format: Format) -> None:
    (item,) = read("-", stdin=stdin, format=format)
    assert (item.text, item.pair) == ("a", "b")


@pytest.mark.parametrize(
    ("stdin", "format", "error"),
    [
        ('{"text": "a", "text_pair": 1}\n', Format.JSONL, "line 1: text_pair is not a string"),
        ("text,text_pair\na\n", Format.CSV, "no cell in the column text_pair"),
    ],
)
def test_a_malformed_pair_is_an_error(stdin: str, format: Format, error: str) -> None:
    with pytest.raises(InvalidInput, match=error):
        read("-", stdin=stdin, format=format)


def test_a_url_is_fetched() -> None:
    (item,) = items_of(["http://a/x.png"], None, io.StringIO(), lambda url: url.encode())
    assert (item.name, item.data) == ("http://a/x.png", b"http://a/x.png")
    assert data(read("see http://a/x.png")) == ["see http://a/x.png"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('["a", {"text": "b"}]', ["a", "b"]),
        ('[{"x": [1]}, {"x": [2]}]', [{"x": [1]}, {"x": [2]}]),
        ("[[1, 2], [3, 4]]", [[[1, 2], [3, 4]]]),
        ('{"x": [1]}', [{"x": [1]}]),
    ],
)
def test_a_json_file_is_a_list_of_inputs_or_one_input(content: str, expected: list[Any], tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(content)
    assert data(read(str(tmp_path / "a.json"))) == expected


def test_malformed_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[1,")
    with pytest.raises(InvalidInput, match=r"a\.json is not well-formed JSON"):
        read(str(tmp_path / "a.json"))


def test_items_are_counted_if_no_file_has_to_be_read(tmp_path: Path) -> None:
    for name in ("a.png", "b.wav"):
        (tmp_path / name).touch()
    given = [str(tmp_path), str(tmp_path / "a.png"), "a text"]
    assert count_of(given, None) == len(read(*given)) == 4
    assert count_of([*given, "-"], None) is None
    (tmp_path / "c.npz").touch()
    assert count_of(given, None) is None
